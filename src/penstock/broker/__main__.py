"""python -m penstock.broker"""

from penstock.broker.process import main

raise SystemExit(main())
