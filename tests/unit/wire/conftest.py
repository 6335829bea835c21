"""Property tests here say nothing about time: the first example of many imports a codec's library."""

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
