package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	neturl "net/url"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// sentinels are the Sentinels that watch a master. They know which server it is now. go-redis has a client for that, too, which
// writes each change to the logger that all clients of a process share; here a connection asks for the master as it is made.
type sentinels struct {
	addrs          []string
	master         string
	user, password string
	clients        []*goredis.SentinelClient
}

const sentinelPort = "26379"

// askedAgain is how long a connection is used: then the Sentinels are asked again which server is the master. A master that
// was cut off from them does not know that another has taken over.
const askedAgain = 10 * time.Second

// cutSentinels takes from a URL and its query what is about Sentinels, and leaves that of a server.
func cutSentinels(u *neturl.URL, query neturl.Values, more []string) (*sentinels, error) {
	master, database, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
	if master == "" {
		return nil, errors.New("want the name that the Sentinels give the master, as in redis+sentinel://host:26379/mymaster")
	}
	s := &sentinels{master: master, user: query.Get("sentinel_user"), password: query.Get("sentinel_password")}
	query.Del("sentinel_user")
	query.Del("sentinel_password")
	for _, host := range append([]string{u.Host}, more...) {
		of, err := neturl.Parse("redis://" + host)
		if err != nil || of.Hostname() == "" || of.User != nil || of.Host != host {
			return nil, errURL
		}
		s.addrs = append(s.addrs, net.JoinHostPort(of.Hostname(), cmp.Or(of.Port(), sentinelPort)))
	}
	u.Path = "/" + database
	return s, nil
}

// open makes options dial the master.
func (s *sentinels) open(options *goredis.Options) {
	dial := options.Dialer
	if options.TLSConfig != nil {
		options.TLSConfig.ServerName = "" // that of each server and Sentinel
	}
	for _, addr := range s.addrs {
		s.clients = append(s.clients, goredis.NewSentinelClient(&goredis.Options{
			Addr: addr, Username: s.user, Password: s.password, Dialer: dial, DialerRetries: 1, MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true,
			DialTimeout: options.DialTimeout, ReadTimeout: options.ReadTimeout, WriteTimeout: options.WriteTimeout, Protocol: 2,
		}))
	}
	options.ConnMaxLifetime = cmp.Or(options.ConnMaxLifetime, askedAgain)
	options.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
		addr, err := s.ask(ctx)
		if err != nil {
			return failed{err}, nil
		}
		return dial(ctx, network, addr)
	}
}

// ask returns the master's address, by the Sentinel that answers first.
func (s *sentinels) ask(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		addr string
		err  error
	}
	answers := make(chan answer, len(s.clients))
	for i, client := range s.clients {
		go func() {
			addr, err := master(client.GetMasterAddrByName(ctx, s.master).Result())
			if errors.Is(err, goredis.Nil) {
				err = fmt.Errorf("it knows no master %.40q", s.master)
			}
			if err != nil {
				err = fmt.Errorf("the Sentinel at %s: %w", s.addrs[i], err)
			}
			answers <- answer{addr, err}
		}()
	}
	var errs []error
	for range s.clients {
		got := <-answers
		if got.err == nil {
			return got.addr, nil
		}
		errs = append(errs, got.err)
	}
	return "", errors.Join(errs...)
}

// master returns the address that a Sentinel has told.
func master(told []string, err error) (addr string, _ error) {
	switch {
	case err != nil:
		return "", err
	case len(told) != 2:
		return "", fmt.Errorf("want a host and a port, got %d values", len(told))
	}
	if port, err := strconv.ParseUint(told[1], 10, 16); err != nil || port == 0 || told[0] == "" {
		return "", fmt.Errorf("want a host and a port, got %.40q and %.40q", told[0], told[1])
	}
	return net.JoinHostPort(told[0], told[1]), nil
}

// close closes the connections to Sentinels. The receiver may be nil.
func (s *sentinels) close() (err error) {
	if s != nil {
		for _, client := range s.clients {
			err = errors.Join(err, client.Close())
		}
	}
	return err
}
