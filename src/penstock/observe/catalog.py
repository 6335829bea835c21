"""Every metric, declared once. Metrics of kafka_exporter have its names, so that its dashboards work."""

from __future__ import annotations

from penstock.observe.metric import Kind, Metric


def counter(name: str, help: str, *labels: str) -> Metric:
    return Metric(name=name, kind=Kind.COUNTER, labels=labels, help=help)


def gauge(name: str, help: str, *labels: str) -> Metric:
    return Metric(name=name, kind=Kind.GAUGE, labels=labels, help=help)


def histogram(name: str, help: str, *labels: str) -> Metric:
    return Metric(name=name, kind=Kind.HISTOGRAM, labels=labels, help=help)


# The broker itself
BUILD_INFO = gauge("penstock_build_info", "Always 1; the labels are the versions.", "version", "python", "compiled")
READY = gauge("penstock_ready", "1 when the broker serves requests, as /readyz reports.")
LOOP_LAG_SECONDS = histogram(
    "penstock_loop_lag_seconds", "How late the event loop ran a timer: work on the loop that took long delays all else."
)
LOOP_LAG_SECONDS_MAX = gauge("penstock_loop_lag_seconds_max", "The longest such delay since the last scrape.")

# Requests
REQUESTS = counter("penstock_requests_total", "Requests handled, by API and version.", "api", "version")
REQUEST_SECONDS = histogram(
    "penstock_request_seconds",
    "How long a request kept the event loop busy; waiting for data, replicas or disk is not counted.",
    "api",
)
REQUEST_ERRORS = counter("penstock_request_errors_total", "Error codes sent in responses.", "api", "error")
REQUESTS_REFUSED = counter(
    "penstock_requests_refused_total",
    "Frames that are malformed or not served; their connection was closed without a response.",
    "reason",
)
FETCHES_WAITING = gauge("penstock_fetches_waiting", "Fetch requests that wait for data.")
FETCH_SESSIONS = gauge("penstock_fetch_sessions", "Incremental fetch sessions held in memory.")
FETCH_SESSION_PARTITIONS = gauge("penstock_fetch_session_partitions", "Partitions in fetch sessions.")
FETCH_SESSION_EVICTIONS = counter("penstock_fetch_session_evictions_total", "Fetch sessions evicted for others.")
THROTTLES = counter("penstock_throttles_total", "Requests throttled by a quota.", "api")
THROTTLE_SECONDS = counter("penstock_throttle_seconds_total", "Seconds of throttling by quotas.", "api")

# Connections
CONNECTIONS = gauge("penstock_connections", "Connections open now.")
CONNECTIONS_BY_CLIENT = gauge(
    "penstock_connections_by_client",
    "Open connections by client software, as named in ApiVersions; the 50 most frequent.",
    "software",
    "version",
)
CONNECTIONS_ACCEPTED = counter("penstock_connections_accepted_total", "Connections accepted.")
CONNECTIONS_REFUSED = counter("penstock_connections_refused_total", "Connections refused by a limit on their number.")
NETWORK_BYTES_IN = counter("penstock_network_bytes_in_total", "Bytes read from clients.")
NETWORK_BYTES_OUT = counter("penstock_network_bytes_out_total", "Bytes written to clients.")

# Topics
TOPIC_BYTES_IN = counter("penstock_topic_bytes_in_total", "Bytes of record batches appended.", "topic")
TOPIC_BYTES_OUT = counter("penstock_topic_bytes_out_total", "Bytes of record batches in Fetch responses.", "topic")
TOPIC_RECORDS_IN = counter("penstock_topic_records_in_total", "Records appended.", "topic")
TOPIC_PRODUCE_REFUSED = counter("penstock_topic_produce_refused_total", "Record batches rejected.", "topic")
TOPIC_RECORDS_REPEATED = counter(
    "penstock_topic_records_repeated_total", "Records removed because their message id was known.", "topic"
)

# Schedules
SCHEDULES_PENDING = gauge(
    "penstock_schedules_pending", "Schedules that exist in the partitions that this broker leads.", "topic"
)
SCHEDULES_FIRED = counter("penstock_schedules_fired_total", "Messages delivered when they were due.", "topic")
SCHEDULES_REFUSED = counter(
    "penstock_schedules_refused_total", "Messages that the target topic refused for good.", "topic"
)
SCHEDULES_SKIPPED = counter(
    "penstock_schedules_skipped_total", "Due times that were missed and left out, as the schedule says.", "topic"
)
SCHEDULES_TOO_LATE = counter(
    "penstock_schedules_too_late_total", "Schedules changed or cancelled when their delivery had begun.", "topic"
)
SCHEDULE_LATENESS = histogram(
    "penstock_schedule_lateness_seconds", "How long after its due time a message was fired.", "topic"
)

# Filtered views, those that were read since this broker started
VIEW_RECORDS = counter("penstock_view_records_total", "Records of the parent that were looked at.", "view")
VIEW_RECORDS_PASSED = counter("penstock_view_records_passed_total", "Records that passed the filter.", "view")
VIEW_BYTES = counter("penstock_view_bytes_total", "Bytes of record batches that were looked at.", "view")
VIEW_BYTES_PASSED = counter("penstock_view_bytes_passed_total", "Bytes of record batches that passed.", "view")
VIEW_RECORDS_FAILED = counter(
    "penstock_view_records_failed_total",
    "Records on which the filter has no value, such as a text where it compares a number: they do not pass.",
    "view",
)
VIEW_RECORDS_UNDECODABLE = counter(
    "penstock_view_records_undecodable_total",
    "Records of which a part that the filter reads is not JSON, or not UTF-8: it is NULL.",
    "view",
)
VIEW_SECONDS = counter("penstock_view_seconds_total", "Seconds spent looking.", "view")
VIEW_THROTTLED = counter(
    "penstock_view_throttled_total", "Fetches that waited because the view had used view.cpu.percent.max.", "view"
)

# Partitions, in kafka_exporter's names
BROKERS = gauge("kafka_brokers", "Brokers in the cluster.")
BROKER_INFO = gauge("kafka_broker_info", "Always 1; one line for each broker.", "id", "address")
TOPIC_PARTITIONS = gauge("kafka_topic_partitions", "Partitions of the topic.", "topic")
PARTITION_END = gauge("kafka_topic_partition_current_offset", "The high watermark.", "topic", "partition")
PARTITION_START = gauge("kafka_topic_partition_oldest_offset", "The log start offset.", "topic", "partition")
PARTITION_LEADER = gauge("kafka_topic_partition_leader", "The leader's broker id, -1 if none.", "topic", "partition")
PARTITION_LEADER_PREFERRED = gauge(
    "kafka_topic_partition_leader_is_preferred", "1 when the preferred replica leads.", "topic", "partition"
)
PARTITION_REPLICAS = gauge("kafka_topic_partition_replicas", "Replicas of the partition.", "topic", "partition")
PARTITION_IN_SYNC = gauge(
    "kafka_topic_partition_in_sync_replica", "In-sync replicas of the partition.", "topic", "partition"
)
PARTITION_UNDER_REPLICATED = gauge(
    "kafka_topic_partition_under_replicated_partition", "1 when a replica is not in sync.", "topic", "partition"
)
PARTITION_BYTES = gauge("penstock_partition_bytes", "Bytes of the partition's log on disk.", "topic", "partition")

# Replication and the controller, in the names that Kafka's metrics have in Prometheus
LEADERS = gauge("kafka_server_replicamanager_leadercount", "Partitions that this broker leads.")
REPLICAS = gauge("kafka_server_replicamanager_partitioncount", "Partitions that this broker has a replica of.")
UNDER_REPLICATED = gauge(
    "kafka_server_replicamanager_underreplicatedpartitions", "Partitions led here of which a replica is not in sync."
)
UNDER_MIN_ISR = gauge(
    "kafka_server_replicamanager_underminisrpartitioncount",
    "Partitions led here with fewer in sync than acks=all needs.",
)
REASSIGNING = gauge(
    "kafka_server_replicamanager_reassigningpartitions", "Partitions led here whose replicas are being reassigned."
)
ISR_SHRINKS = counter("kafka_server_replicamanager_isrshrinks_total", "Smaller ISRs that this broker proposed.")
ISR_EXPANDS = counter("kafka_server_replicamanager_isrexpands_total", "Larger ISRs that this broker proposed.")
ISR_PROPOSALS = gauge("penstock_isr_proposals", "ISR changes that this broker proposed and whose end it does not know.")
FETCHER_LAG_MAX = gauge(
    "kafka_server_replicafetchermanager_maxlag", "The most committed records that a follower on this broker lacks."
)
FETCHER_LAG = gauge(
    "kafka_server_fetcherlagmetrics_consumerlag", "Committed records that this follower lacks.", "topic", "partition"
)
FETCHER_FAILURES = gauge(
    "kafka_server_replicafetchermanager_failedpartitionscount", "Followers here whose last fetch failed."
)
CONTROLLER_ACTIVE = gauge("kafka_controller_kafkacontroller_activecontrollercount", "1 on the controller.")
METADATA_SUSPENDED = gauge(
    "penstock_metadata_suspended",
    "1 while this broker cannot reach the metadata store: it serves, and neither elects leaders nor changes ISRs.",
)
PARTITIONS_OFFLINE = gauge("kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions without a leader.")
PREFERRED_IMBALANCE = gauge(
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount", "Partitions that another than the first leads."
)
ELECTIONS = counter("kafka_controller_controllerstats_leaderelections_total", "Leaders that this controller elected.")
UNCLEAN_ELECTIONS = counter(
    "kafka_controller_controllerstats_uncleanleaderelections_total", "Those of them that may lack committed records."
)

# Groups, in kafka_exporter's names
GROUP_OFFSET = gauge(
    "kafka_consumergroup_current_offset", "The committed offset of a group.", "consumergroup", "topic", "partition"
)
GROUP_OFFSET_SUM = gauge(
    "kafka_consumergroup_current_offset_sum", "The same, added up over the topic.", "consumergroup", "topic"
)
GROUP_LAG = gauge(
    "kafka_consumergroup_lag",
    "Offsets from the committed offset to the high watermark; deleted records do not count.",
    "consumergroup",
    "topic",
    "partition",
)
GROUP_LAG_SUM = gauge("kafka_consumergroup_lag_sum", "The same, added up over the topic.", "consumergroup", "topic")
GROUP_MEMBERS = gauge("kafka_consumergroup_members", "Members of the group.", "consumergroup")
SHARE_SESSIONS = gauge("penstock_share_sessions", "Share sessions of members of share groups on this broker.")
SHARE_FETCHES_WAITING = gauge("penstock_share_fetches_waiting", "ShareFetch requests that wait for records.")
SHARE_RECORDS_HELD = gauge(
    "penstock_share_records_held",
    "Records that members of a share group hold, of partitions that this broker leads.",
    "group",
    "topic",
)
SHARE_RECORDS_UNFINISHED = gauge(
    "penstock_share_records_unfinished",
    "Records that were delivered, and neither accepted, rejected nor given up.",
    "group",
    "topic",
)
SHARE_RECORDS_DELIVERED = counter(
    "penstock_share_records_delivered_total", "Records delivered to members of share groups, each time."
)
SHARE_RECORDS_REDELIVERED = counter(
    "penstock_share_records_redelivered_total", "Of the records delivered, those that had been before."
)
SHARE_RECORDS_EXPIRED = counter(
    "penstock_share_records_expired_total",
    "Of the records delivered, those whose lock expired before an acknowledgement.",
)
SHARE_ACQUISITION_WAIT_SECONDS = histogram(
    "penstock_share_acquisition_wait_seconds", "How long the ShareFetch requests that got records waited for them."
)
SHARE_DEAD_LETTERS = counter("penstock_share_dead_letters_total", "Records copied to topics of dead letters.")
SHARE_START_SECONDS = gauge(
    "penstock_share_start_seconds",
    "For how long the first unfinished record of a share group has been so, of partitions with one.",
    "group",
    "topic",
)
GROUPS_LOADING = gauge("penstock_groups_loading", "Partitions of __consumer_offsets that are not loaded yet.")
GROUP_OFFSETS_TRUNCATED = gauge(
    "penstock_consumergroup_offsets_truncated", "1 when there are more committed offsets than a scrape reports."
)

# Storage
LOG_DIRECTORIES = gauge("penstock_log_directories", "Log directories, by state: online or offline.", "state")
LOG_DIRECTORY_FREE_BYTES = gauge("penstock_log_directory_free_bytes", "Free bytes of the file system.", "directory")
FILES_OPEN = gauge("penstock_log_files_open", "Segments held open.")
FLUSHES = counter("penstock_flushes_total", "Flushes of a log to disk.")
FLUSH_ERRORS = counter("penstock_flush_errors_total", "Flushes that failed; each takes its log directory offline.")
FLUSH_SECONDS = histogram("penstock_flush_seconds", "How long a flush took.")
SEGMENTS_DELETED = counter("penstock_segments_deleted_total", "Segments deleted by retention and DeleteRecords.")
COMPACTIONS = counter("penstock_compactions_total", "Compactions of a log.")
COMPACTION_BYTES_READ = counter("penstock_compaction_bytes_read_total", "Bytes read by compaction.")
COMPACTION_BYTES_WRITTEN = counter("penstock_compaction_bytes_written_total", "Bytes written by compaction.")
COMPACTION_ERRORS = counter("penstock_compaction_errors_total", "Compactions that failed.")
UNCLEANABLE_PARTITIONS = gauge(
    "penstock_uncleanable_partitions", "Partitions that could not be compacted; see the log event log_uncleanable."
)
SCRUBBED_SEGMENTS = counter("penstock_scrubbed_segments_total", "Segments whose checksums the scrubber has checked.")
SCRUB_FINDINGS = counter("penstock_scrub_findings_total", "Segments in which the scrubber found damage.")
COORDINATOR_DAMAGE = counter(
    "penstock_coordinator_damage_total", "Coordinator loads that lost records because of damage in the log."
)

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""In the order above."""
