package redis

import (
	"errors"
	"fmt"
	neturl "net/url"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// address is a parsed URL of a server or a cluster. Servers that Sentinel watches are a server whose address it tells.
type address struct {
	server    *goredis.Options
	cluster   *goredis.ClusterOptions
	sentinels *sentinels
	replicas  int
	patience  time.Duration
	// credentials are those that expire; nil if the URL has them.
	credentials credentials
}

// Schemes are those of the URLs that [Open] takes.
var Schemes = []string{"redis", "rediss", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel"}

const maxReplicas = 16

var errURL = errors.New("want redis://[[user]:password@]host[:port][/database] or " +
	"redis+cluster://[[user]:password@]host[:port][,host:port…] or redis+sentinel://[[user]:password@]host[:port][,host[:port]…]/master[/database], or rediss… of each for TLS; with special characters in the password escaped as in %2F, and only known parameters")

// parseURL parses a store's URL. Its errors do not repeat the URL.
func parseURL(url string) (address, error) {
	scheme, rest, _ := strings.Cut(url, "://")
	scheme, isCluster := strings.CutSuffix(scheme, "+cluster")
	scheme, isWatched := strings.CutSuffix(scheme, "+sentinel")
	var more []string
	if isCluster || isWatched {
		rest, more = cutHosts(rest)
	}
	u, err := neturl.Parse(scheme + "://" + rest)
	if err != nil {
		return address{}, errURL
	}
	query, err := neturl.ParseQuery(u.RawQuery)
	if err != nil {
		return address{}, errURL
	}
	var a address
	if query.Has("wait_replicas") {
		// Errors may show the values of these parameters, which are no secrets.
		text := query.Get("wait_replicas")
		if a.replicas, err = strconv.Atoi(text); err != nil || a.replicas < 0 || a.replicas > maxReplicas {
			return address{}, fmt.Errorf("wait_replicas: want 0 to %d, got %.20q", maxReplicas, text)
		}
		query.Del("wait_replicas")
	}
	a.patience = replicaTimeout
	if query.Has("wait_timeout") {
		text := query.Get("wait_timeout")
		if a.patience, err = time.ParseDuration(text); err != nil || a.patience < time.Millisecond || a.patience > longestWait {
			return address{}, fmt.Errorf("wait_timeout: want a duration such as 100ms, of 1ms to %v, got %.20q", longestWait, text)
		}
		query.Del("wait_timeout")
	}
	if a.credentials, err = cutCredentials(u, query, !isCluster && !isWatched); err != nil {
		return address{}, err
	}
	if a.credentials != nil {
		a.credentials = a.credentials.patient()
	}
	if isWatched {
		if a.sentinels, err = cutSentinels(u, query, more); err != nil {
			return address{}, err
		}
		more = nil
	}
	for _, host := range more {
		query.Add("addr", host)
	}
	u.RawQuery = query.Encode()
	if !isCluster {
		if a.server, err = goredis.ParseURL(u.String()); err != nil {
			return address{}, errURL
		}
		return a, nil
	}
	if u.Path != "" && u.Path != "/" {
		return address{}, errors.New("want no database in the URL of a cluster, which has only one")
	}
	if a.cluster, err = goredis.ParseClusterURL(u.String()); err != nil {
		return address{}, errURL
	}
	return a, nil
}

// cutHosts removes all hosts except the first from the part of a URL after its scheme.
func cutHosts(rest string) (one string, more []string) {
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	user := strings.LastIndex(rest[:end], "@") + 1
	hosts := strings.Split(rest[user:end], ",")
	return rest[:user] + hosts[0] + rest[end:], hosts[1:]
}
