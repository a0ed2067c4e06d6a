package main

import (
	"log/slog"
	"slices"
	"strconv"
	"strings"
)

// undone is a variable of envoyproxy/ratelimit that has no effect here.
type undone struct {
	name string
	// neutral are values, with spaces between, that ask for what Weir does anyway.
	neutral string
	// instead says what Weir does. It is empty if nobody notices a difference.
	instead string
}

const (
	noMapper   = "metrics have the first key as the label key1, and the others joined in key2"
	ownPool    = "Weir decides how many connections to Redis it has"
	ownBatches = "Weir joins calls of Redis by itself"
	noWait     = "no request waits for Redis for long, and Weir starts while it is away"
	xdsPauses  = "the pauses between calls of the xDS server are those of XDS_CLIENT_BACKOFF_INITIAL_INTERVAL and XDS_CLIENT_BACKOFF_MAX_INTERVAL"
	noDogStats = "there is no DogStatsD: USE_STATSD tells a statsd, and USE_PROMETHEUS Prometheus"
	noPerUnit  = "all counters are in the Redis of REDIS_URL"
	noDebug    = "there is no debug port"
)

// undoneVariables are all of them, with those that its released versions do not have yet. Those
// that only another of them puts in force are in [undoneBehind].
var undoneVariables = []undone{
	{"DEBUG_HOST", "", noDebug},
	{"DEBUG_PORT", "", noDebug},
	{"FORCE_START_WITHOUT_INITIAL_CONFIG", "true", "Weir starts without descriptors: it is not healthy, and answers with an error"},
	{"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "", xdsPauses},
	{"XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "", xdsPauses},
	{"XDS_CLIENT_BACKOFF_JITTER", "", xdsPauses},
	{"USE_DOG_STATSD", "false", noDogStats},
	{"USE_DOG_STATSD_MOGRIFIERS", "", noDogStats},
	{"EXTRA_TAGS", "", "metrics have no tags: Prometheus can add labels to all that it reads of an instance"},
	{"PROMETHEUS_MAPPER_YAML", "", noMapper},
	{"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "false", "response times are not told"},
	{"SANITIZE_DESCRIPTOR_METRIC_DOTS", "false", "names of metrics for statsd keep the dots of descriptors, except those of addresses"},
	{"RUNTIME_IGNOREDOTFILES", "true", "files that begin with a dot are left out"},
	{"RUNTIME_WATCH_ROOT", "true false", ""}, // files are read again every second, however they change
	{"EXPIRATION_JITTER_MAX_SECONDS", "", "a counter stays in Redis as long as it counts"},
	{"LOCAL_CACHE_SIZE_IN_BYTES", "0", "instances remember refused keys by themselves"},
	{"USE_CALENDAR_MONTH_RATE_LIMIT", "false", "a unit of month has 30 days: window: month in place of the unit has those of the calendar"},
	{"REDIS_SOCKET_TYPE", "tcp", "Weir reaches Redis by TCP, and by TLS if REDIS_TLS says so"},
	{"REDIS_POOL_SIZE", "", ownPool},
	{"REDIS_POOL_ON_EMPTY_BEHAVIOR", "", ownPool},
	{"REDIS_POOL_ON_EMPTY_WAIT_DURATION", "", ownPool},
	{"REDIS_PIPELINE_WINDOW", "0 0s", ownBatches},
	{"REDIS_PIPELINE_LIMIT", "0", ownBatches},
	{"REDIS_CLUSTER_PIPELINE_PARALLELISM", "", ownBatches},
	{"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "false", "Redis is to have a certificate for the host in REDIS_URL"},
	{"REDIS_TIMEOUT", "", noWait},
	{"REDIS_STARTUP_INITIAL_INTERVAL", "", noWait},
	{"REDIS_STARTUP_MAX_INTERVAL", "", noWait},
	{"REDIS_STARTUP_MAX_ELAPSED_TIME", "", noWait},
	{"REDIS_PERSECOND", "false", noPerUnit},
}

// undoneBehind are the beginnings of names that do something there only if another variable says
// so, which is told instead, or refused.
var undoneBehind = []string{"REDIS_PERSECOND_", "MEMCACHE_"}

// tellUndone logs each variable that is set and has no effect.
func (v *variables) tellUndone(log *slog.Logger) {
	for _, u := range undoneVariables {
		value := v.getenv(u.name)
		if value == "" || u.instead == "" {
			continue
		}
		if !slices.ContainsFunc(strings.Fields(u.neutral), func(neutral string) bool { return alike(value, neutral) }) {
			log.Warn(u.name+" has no effect", "instead", u.instead)
		}
	}
}

// alike reports whether two values of a variable mean the same: 1, t and TRUE are true.
func alike(a, b string) bool {
	first, err := strconv.ParseBool(a)
	second, errSecond := strconv.ParseBool(b)
	return strings.EqualFold(a, b) || err == nil && errSecond == nil && first == second
}
