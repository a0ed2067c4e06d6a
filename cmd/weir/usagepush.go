package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"weir/internal/backend"
	"weir/internal/server"
	"weir/internal/store"
)

// usagePush tells a service that bills what keys have used since it was told last. What is to be told is
// in a file before it is sent, so an event that may have arrived is sent again as it was, with its id.
type usagePush struct {
	backend         *backendFlags
	namespace, rule string
	target, form    string
	token           secret
	given           string // the token
	state           string // the file's path
	every           time.Duration
	since           string // the first day of a new file
	db              *bolt.DB
	out, stderr     io.Writer
	now             func() time.Time
}

// The buckets of a file: how much of each row is told or queued, and of whom, the events that are queued, and what the
// file is for.
var sentBucket, namesBucket, queueBucket, aboutBucket = []byte("sent"), []byte("names"), []byte("queue"), []byte("about")

// pushed is an event: what a row of usage has more than before, or a gap.
type pushed struct {
	ID   string          `json:"id"`
	At   time.Time       `json:"at"`
	Hits int64           `json:"hits"`
	Row  server.UsageRow `json:"row"`
	Gap  *backend.Gap    `json:"gap,omitempty"`
}

const (
	// pushBatch is the most events of a request. Lago takes no more.
	pushBatch = 100
	// pushDays is how many days before the last that was told may still change: proxies send what had
	// no answer again for a day, and the correction of a request goes to its day.
	pushDays = 2
	// gapFinal is how long after a proxy was given up it can't tell any more what it had counted.
	gapFinal = 24 * time.Hour
)

func (p *usagePush) define(flags *flag.FlagSet) {
	flags.StringVar(&p.target, "push", "", "send what was used since the last time to this `URL` as events, each with an id that is counted once")
	flags.StringVar(&p.form, "push-form", "cloudevents", "`form` of the events: cloudevents, as OpenMeter takes them, or lago")
	p.token.define(flags, "push-token", "bearer `token` of the URL; better given as WEIR_PUSH_TOKEN or in a file", "`file` with the token of the URL")
	flags.StringVar(&p.state, "state", "", "`file` that remembers what was sent; keep it, or all is sent again")
	flags.DurationVar(&p.every, "every", 0, "push again and again, at this `interval`; 0 pushes once")
	flags.StringVar(&p.since, "since", "", "the first `day` of a new file, such as 2026-11-01; today if empty")
}

// check returns what is wrong with the flags.
func (p *usagePush) check(env environment) error {
	u, err := url.Parse(p.target)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil:
		return fmt.Errorf("%w: --push: want a URL such as https://openmeter.example/api/v1/events, without a user", errUsage)
	case p.form != "cloudevents" && p.form != "lago":
		return fmt.Errorf("%w: --push-form: want cloudevents or lago, got %q", errUsage, p.form)
	case p.state == "":
		return fmt.Errorf("%w: --push: want --state, a file that remembers what was sent", errUsage)
	case p.every < 0 || p.every > 0 && p.every < time.Second:
		return fmt.Errorf("%w: --every: want at least 1s, or 0, got %v", errUsage, p.every)
	}
	if p.since != "" {
		if _, err := time.Parse(time.DateOnly, p.since); err != nil {
			return fmt.Errorf("%w: --since: want a day such as 2026-11-01, got %q", errUsage, p.since)
		}
	}
	p.given, err = p.token.read(env)
	return err
}

// run pushes once, or until ctx ends.
func (p *usagePush) run(ctx context.Context) (err error) {
	p.db, err = bolt.Open(p.state, 0o600, &bolt.Options{Timeout: time.Second})
	if errors.Is(err, berrors.ErrTimeout) {
		return fmt.Errorf("%s: another process pushes by this file", p.state)
	} else if err != nil {
		return fmt.Errorf("%s: %w", p.state, err)
	}
	defer func() { err = errors.Join(err, p.db.Close()) }()
	if err := p.begin(); err != nil {
		return err
	}
	if p.every == 0 {
		return p.round(ctx)
	}
	ticks := time.Tick(p.every)
	for {
		if err := p.round(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintf(p.stderr, "%s %v; it is tried again\n", p.now().Format(time.RFC3339), err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
	}
}

// begin makes the buckets of a new file. A file is for one namespace, rule and URL.
func (p *usagePush) begin() error {
	about := strings.Join([]string{p.namespace, p.rule, p.target, p.form}, "\n")
	return p.db.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{sentBucket, namesBucket, queueBucket, aboutBucket} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		b := tx.Bucket(aboutBucket)
		switch known := b.Get([]byte("about")); {
		case known == nil:
			return errors.Join(b.Put([]byte("about"), []byte(about)), b.Put([]byte("day"), []byte(p.first())), b.Put(saltKey, []byte(rand.Text())))
		case string(known) != about:
			return fmt.Errorf("%s: it remembers what was sent of another namespace or rule, or to another URL: %q", p.state, known)
		}
		return nil
	})
}

// first is the day from which a new file tells usage, such that days before it are not looked at.
func (p *usagePush) first() string {
	day, err := time.Parse(time.DateOnly, p.since)
	if err != nil {
		day = p.now().UTC()
	}
	return day.AddDate(0, 0, pushDays).Format(time.DateOnly)
}

// round sends what is left of the last round, and what was used since.
func (p *usagePush) round(ctx context.Context) error {
	left, err := p.flush(ctx)
	if err != nil {
		return err
	}
	if err := p.look(ctx); err != nil {
		return err
	}
	told, err := p.flush(ctx)
	fmt.Fprintf(p.out, "%d events sent\n", left+told)
	return err
}

// look queues an event for each row of usage that has changed. It asks for one day at a time: an answer has room for all that
// a day can have, but not for a month.
func (p *usagePush) look(ctx context.Context) error {
	var told string
	if err := p.db.View(func(tx *bolt.Tx) error {
		told = string(tx.Bucket(aboutBucket).Get([]byte("day")))
		return nil
	}); err != nil {
		return err
	}
	last, err := time.Parse(time.DateOnly, told)
	if err != nil {
		return fmt.Errorf("%s: the last day is %q", p.state, told)
	}
	today := p.now().UTC().Truncate(24 * time.Hour)
	from := last.AddDate(0, 0, -pushDays)
	if kept := today.AddDate(0, 0, 1-store.UsedDays); from.Before(kept) {
		from = kept // rows of days that are no longer kept have not gone
	}
	first := from.Format(time.DateOnly)
	// The day of a rule's zone may be tomorrow's of UTC.
	for day := from; !day.After(today.AddDate(0, 0, 1)); day = day.AddDate(0, 0, 1) {
		if err := p.lookAt(ctx, day.Format(time.DateOnly), first); err != nil {
			return err
		}
	}
	return p.db.Update(func(tx *bolt.Tx) error {
		if err := tx.Bucket(aboutBucket).Delete(lostKey); err != nil {
			return err
		}
		// Days before are not looked at any more.
		for _, b := range []*bolt.Bucket{tx.Bucket(sentBucket), tx.Bucket(namesBucket)} {
			for c := b.Cursor(); ; {
				key, _ := c.First()
				if key == nil || string(key[:min(len(key), len(first))]) >= first {
					break
				}
				if err := b.Delete(key); err != nil {
					return err
				}
			}
		}
		if day := today.Format(time.DateOnly); day > told {
			return tx.Bucket(aboutBucket).Put([]byte("day"), []byte(day))
		}
		return nil
	})
}

// saltKey has what tells the events of a file apart from those of others, such as of another cluster that pushes to the same URL.
var saltKey = []byte("salt")

// lostKey has the first day of which the store has lost what was told, until all days were looked at: a store that was started anew
// has lost the days after it, too, though their rows may be there again.
var lostKey = []byte("lost")

// lookAt queues events for the rows of a day, and for gaps since the first day.
func (p *usagePush) lookAt(ctx context.Context, day, first string) error {
	query := url.Values{"namespace": {p.namespace}, "by": {"key,model,day"}, "day": {day}}
	found, err := get[server.Usage](ctx, p.backend, server.UsagePath, query)
	if err != nil {
		return err
	}
	return p.db.Update(func(tx *bolt.Tx) error {
		about := tx.Bucket(aboutBucket)
		lost := about.Get(lostKey) != nil
		there, others := map[string]bool{}, map[string]bool{}
		for i := range found.Rows {
			r := &found.Rows[i]
			there[string(pushKey(r))] = true
			others[r.Rule] = others[r.Rule] || r.Others
		}
		if p.rule != "" { // it was not asked for: what has no place among its others is of all rules
			found.Rows = slices.DeleteFunc(found.Rows, func(r server.UsageRow) bool { return r.Rule != p.rule })
		}
		// A full day counts the hits of a row that it has no place for as others' from then on, those of its rule or of all.
		c := tx.Bucket(sentBucket).Cursor()
		for key, value := c.Seek([]byte(day)); bytes.HasPrefix(key, []byte(day)); key, value = c.Next() {
			part := strings.Split(string(key), "\x00")
			if there[string(key)] || len(part) != 4 || toldOf(value) == 0 {
				continue
			}
			found.Rows = append(found.Rows, server.UsageRow{Day: part[0], Rule: part[1], Hash: part[2], Model: part[3], Others: part[2] == ""})
			if !lost && !others[part[1]] && !others["-"] {
				if lost, err = true, about.Put(lostKey, []byte(day)); err != nil {
					return err
				}
				fmt.Fprintf(p.stderr, "%s the store has lost usage of %s that was sent: no hits are taken back\n", p.now().Format(time.RFC3339), day)
			}
		}
		for i := range found.Rows {
			if err := p.changed(tx, &found.Rows[i], lost); err != nil {
				return err
			}
		}
		for i := range found.Gaps {
			if err := p.gap(tx, &found.Gaps[i], first); err != nil {
				return err
			}
		}
		return nil
	})
}

// toldOf is how many hits of a row were told.
func toldOf(sent []byte) int64 {
	if len(sent) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(sent))
}

// changed queues an event if a row has more or less hits than were told. If the store has lost some, what it has
// instead counts as told, and is not sent.
func (p *usagePush) changed(tx *bolt.Tx, r *server.UsageRow, lost bool) error {
	sent, queue, names := tx.Bucket(sentBucket), tx.Bucket(queueBucket), tx.Bucket(namesBucket)
	key := pushKey(r)
	before := toldOf(sent.Get(key))
	if r.Hits == before {
		return nil
	}
	after := binary.BigEndian.AppendUint64(nil, uint64(r.Hits))
	if lost && (r.Hits < before || before < 0) {
		return sent.Put(key, after)
	}
	// A row that has gone has no name.
	if name := names.Get(key); len(r.Values) == 0 && name != nil {
		r.Values = []backend.Value{{Text: string(name)}}
	}
	number, err := queue.NextSequence()
	if err != nil {
		return err
	}
	// A row may have the same two amounts again, as hits go back: the number tells the events apart. Files of before have no salt.
	named := slices.Concat([]byte(p.namespace), []byte{0}, key, binary.BigEndian.AppendUint64(nil, number), after, tx.Bucket(aboutBucket).Get(saltKey))
	identity := sha256.Sum256(named)
	// What is corrected later belongs to its day.
	at := p.now().UTC().Truncate(time.Second)
	if day, err := time.Parse(time.DateOnly, r.Day); err == nil && at.After(day.AddDate(0, 0, 1)) {
		at = day.AddDate(0, 0, 1).Add(-time.Second)
	}
	r.Budget = nil
	e := pushed{ID: hex.EncodeToString(identity[:16]), At: at, Hits: r.Hits - before, Row: *r}
	event, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return errors.Join(queue.Put(binary.BigEndian.AppendUint64(nil, number), event), sent.Put(key, after), names.Put(key, []byte(e.subject())))
}

// gap queues the event of a gap, unless it was told or its proxy may come back.
func (p *usagePush) gap(tx *bolt.Tx, g *backend.Gap, first string) error {
	sent, queue := tx.Bucket(sentBucket), tx.Bucket(queueBucket)
	final := g.To.Add(gapFinal)
	day := final.UTC().Format(time.DateOnly)
	key := []byte(day + "\x00" + g.Sender.String())
	if p.now().Before(final) || day < first || sent.Get(key) != nil {
		return nil
	}
	number, err := queue.NextSequence()
	if err != nil {
		return err
	}
	identity := sha256.Sum256([]byte(strings.Join([]string{p.namespace, "gap", g.Node.String(), g.Sender.String(), g.From.String()}, "\x00")))
	event, err := json.Marshal(pushed{ID: hex.EncodeToString(identity[:16]), At: g.From, Gap: g})
	if err != nil {
		return err
	}
	return errors.Join(queue.Put(binary.BigEndian.AppendUint64(nil, number), event), sent.Put(key, []byte("gap")))
}

// pushKey names a row in the file.
func pushKey(r *server.UsageRow) []byte {
	return []byte(strings.Join([]string{r.Day, r.Rule, r.Hash, r.Model}, "\x00"))
}

// flush sends what is queued, in batches, and returns how many events.
func (p *usagePush) flush(ctx context.Context) (told int, err error) {
	for {
		var keys [][]byte
		var events []pushed
		err := p.db.View(func(tx *bolt.Tx) error {
			c := tx.Bucket(queueBucket).Cursor()
			for key, value := c.First(); key != nil && len(keys) < pushBatch; key, value = c.Next() {
				var e pushed
				if err := json.Unmarshal(value, &e); err != nil {
					return fmt.Errorf("%s: %w", p.state, err)
				}
				keys, events = append(keys, slices.Clone(key)), append(events, e)
			}
			return nil
		})
		if err != nil || len(events) == 0 {
			return told, err
		}
		if err := p.send(ctx, events); err != nil {
			return told, err
		}
		told += len(events)
		if err := p.db.Update(func(tx *bolt.Tx) error {
			for _, key := range keys {
				if err := tx.Bucket(queueBucket).Delete(key); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return told, err
		}
	}
}

// errKnown is the error of events one of which Lago knows.
var errKnown = errors.New("an event is known already")

// send posts events. Lago takes none of a batch if it knows one of them, as it does after its answer was lost: then each goes alone.
func (p *usagePush) send(ctx context.Context, events []pushed) error {
	err := p.post(ctx, events)
	if !errors.Is(err, errKnown) {
		return err
	}
	if len(events) == 1 {
		return nil
	}
	for i := range events {
		if err := p.send(ctx, events[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (p *usagePush) post(ctx context.Context, events []pushed) (err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	kind, body := "application/cloudevents-batch+json", p.cloudEvents(events)
	if p.form == "lago" {
		kind, body = "application/json", p.lago(events)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.target, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", kind)
	if p.given != "" {
		request.Header.Set("Authorization", "Bearer "+p.given)
	}
	// A client that followed a redirection would ask for a page, and take it for the answer.
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode/100 != 2 {
		reason, _ := io.ReadAll(io.LimitReader(response.Body, 300)) // the status is told anyway
		if p.form == "lago" && response.StatusCode == http.StatusUnprocessableEntity && bytes.Contains(reason, []byte(`"value_already_exist"`)) {
			return errKnown
		}
		return fmt.Errorf("--push: the service answered %s: %q", response.Status, reason)
	}
	return nil
}

// cloudEvents returns events as CloudEvents 1.0 has them, in its JSON batch format.
func (p *usagePush) cloudEvents(events []pushed) any {
	type event struct {
		SpecVersion     string         `json:"specversion"`
		ID              string         `json:"id"`
		Source          string         `json:"source"`
		Type            string         `json:"type"`
		Subject         string         `json:"subject"`
		Time            time.Time      `json:"time"`
		DataContentType string         `json:"datacontenttype"`
		Data            map[string]any `json:"data"`
	}
	all := make([]event, len(events))
	for i, e := range events {
		all[i] = event{"1.0", e.ID, "weir/" + p.namespace, cmp.Or(e.gap(), "weir.usage"), e.subject(), e.At, "application/json", e.data()}
	}
	return all
}

// gap is the type of a gap's event; empty for other events.
func (e *pushed) gap() string {
	if e.Gap == nil {
		return ""
	}
	return "weir.gap"
}

// lago returns events as Lago's POST /api/v1/events/batch has them. The rule is the code of the metric.
func (p *usagePush) lago(events []pushed) any {
	all := make([]map[string]any, len(events))
	for i, e := range events {
		all[i] = map[string]any{
			"transaction_id": e.ID, "external_subscription_id": e.subject(), "code": cmp.Or(e.gap(), e.Row.Rule), "timestamp": e.At.Unix(), "properties": e.data(),
		}
	}
	return map[string]any{"events": all}
}

// subject is the key: its values, joined by /, or its hash if the rule does not reveal them. That of a gap is the proxy.
func (e *pushed) subject() string {
	if e.Gap != nil {
		return e.Gap.Node.String()
	}
	if e.Row.Others {
		return "others"
	}
	values := make([]string, len(e.Row.Values))
	for i := range values {
		values[i] = e.Row.Values[i].Text
	}
	if text := strings.Join(values, "/"); text != "" {
		return text
	}
	return e.Row.Hash
}

func (e *pushed) data() map[string]any {
	if g := e.Gap; g != nil {
		return map[string]any{"node": g.Node, "worker": g.Sender, "from": g.From, "to": g.To, "idle": g.Idle}
	}
	data := map[string]any{"hits": e.Hits, "rule": e.Row.Rule, "day": e.Row.Day}
	if e.Row.Hash != "" {
		data["hash"] = e.Row.Hash
	}
	if e.Row.Model != "" {
		data["model"] = e.Row.Model
	}
	return data
}
