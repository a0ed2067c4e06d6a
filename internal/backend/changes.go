package backend

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/blake2s"

	"weir/internal/store"
	"weir/internal/usage"
	"weir/internal/wire"
)

// By is who changes something, from where, and why.
type By struct {
	// Name is that of the token or the certificate; empty if it has none. Known is by which of them
	// the client is known; empty if it needs neither.
	Name, Known string
	// Address is the client's, without its port.
	Address string
	// Reason is at most [MaxReason] bytes of UTF-8.
	Reason string
	// Once is the same in each copy of a call. A counter is changed once for it, unless it is empty.
	Once string
	// Log is told of each change.
	Log *slog.Logger
}

const (
	// MaxReason is the most bytes of a reason.
	MaxReason = 256
	// maxBy bounds the name of who changes something, and maxShown the values that are shown of a
	// key, in bytes and in characters of each.
	maxBy    = 200
	maxShown = 64
)

// Changer changes what people can set. Before it changes something, it keeps a record of the
// change. If that fails, nothing changes: a log that some changes escape is no evidence. When the
// change is made, the record says so.
type Changer struct {
	*Backend
	by *By
}

// By returns what changes limits and counters for somebody. If by is nil, there are no records: that
// is for a backend that serves nobody else.
func (b *Backend) By(by *By) Changer { return Changer{b, by} }

// ErrUnrecorded is wrapped by the error of a change that could not be recorded, and was not made.
var ErrUnrecorded = errors.New("the change can't be recorded, and was not made")

// What a change is, in records.
const (
	setOverride   = "set override"
	unsetOverride = "remove override"
	setRule       = "set rule"
	resetRule     = "reset rule"
	resetCounter  = "reset counter"
	grantHits     = "give back hits"
	setPrice      = "set price"
	unsetPrice    = "remove price"
)

// maxOf is more keys than have room in a record: one takes 14 bytes at least.
const maxOf = store.MaxChange / 14

// Record is the record of a change.
type Record struct {
	At time.Time `json:"at"`
	// Name, By, Address and Reason are those of [By].
	Name    string `json:"name,omitempty"`
	By      string `json:"by,omitempty"`
	Address string `json:"address,omitempty"`
	What    string `json:"what"`
	// Of has what was changed, and More is how many others there are without room.
	Of   []Changed `json:"of"`
	More int       `json:"more,omitempty"`
	// Returned is how many hits a counter has given back, in all limits together.
	Returned uint64 `json:"returned,omitempty"`
	Reason   string `json:"reason,omitempty"`
	// Made means that the change was made. Else that is not known: the store failed, or the backend
	// ended meanwhile.
	Made bool `json:"made"`
}

// Changed is one key or price of a change.
type Changed struct {
	Rule string `json:"rule,omitempty"`
	// Hash is the key's name in the backend, if the proxies have no secret, and no network of an
	// address counts. Values are those of the key, as far as the reports of nodes reveal them.
	Hash   string  `json:"hash,omitempty"`
	Values []Value `json:"values,omitempty"`
	List   string  `json:"list,omitempty"`
	Model  string  `json:"model,omitempty"`
	// Before and After are limits, hits or prices; empty if there are none.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	values []string
}

// Value is one value of a key. Cut means that Text is only its beginning.
type Value struct {
	Text string `json:"text"`
	Cut  bool   `json:"cut,omitempty"`
}

// recording is the record of a change that is being made; nil leaves none.
type recording struct {
	Record
	backend   *Backend
	namespace string
	member    uint64
	log       *slog.Logger
}

func (c Changer) record(namespace, what string) *recording {
	if c.by == nil {
		return nil
	}
	name := strings.ToValidUTF8(c.by.Name, "\uFFFD")
	return &recording{backend: c.Backend, namespace: namespace, member: rand.Uint64(), log: c.by.Log, Record: Record{
		Name: name[:min(len(name), maxBy)], By: c.by.Known, Address: c.by.Address, What: what, Reason: c.by.Reason,
	}}
}

// begin keeps the record of a change that is about to be made.
func (r *recording) begin(ctx context.Context, of []Changed) error {
	if r == nil {
		return nil
	}
	n := min(len(of), maxOf)
	r.At, r.Of, r.More = r.backend.overrides.now().UTC().Truncate(time.Millisecond), of[:n], len(of)-n
	r.reveal(ctx)
	if err := r.keep(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrUnrecorded, err)
	}
	return nil
}

// end says what became of the change, in the record if it was made, and in the log.
func (r *recording) end(ctx context.Context, err error) {
	if r == nil {
		return
	}
	if r.Made = err == nil; r.Made {
		// It is made even if its client has gone.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
		defer cancel()
		err = r.keep(ctx)
	}
	told := []any{"namespace", r.namespace, "what", r.What, "of", r.inWords(), "name", r.Name, "by", r.By, "address", r.Address, "reason", r.Reason}
	if err == nil {
		r.log.Info("somebody has changed something", told...)
	} else {
		r.log.Warn("somebody changes something, and the store fails", append(told, "made", r.Made, "error", err)...)
	}
}

// keep encodes the record, with as many of its keys as have room.
func (r *recording) keep(ctx context.Context) error {
	for short := false; ; {
		var body bytes.Buffer
		encoder := json.NewEncoder(&body)
		encoder.SetEscapeHTML(false) // who shows it escapes it
		if err := encoder.Encode(&r.Record); err != nil {
			return err
		}
		if body.Len() <= store.MaxChange {
			_, err := r.backend.store.Note(ctx, store.Changes, r.namespace, store.Note{Member: r.member, Body: body.Bytes()})
			return err
		}
		switch n := len(r.Of); {
		case n > 1, n == 1 && short:
			r.More += n - n/2
			r.Of = r.Of[:n/2]
		case n == 1:
			of := &r.Of[0]
			short, of.Values = true, nil
			of.Before, of.After = of.Before[:min(len(of.Before), maxBy)], of.After[:min(len(of.After), maxBy)]
		default:
			return fmt.Errorf("a record has %d bytes", body.Len())
		}
	}
}

// inWords says what has changed, in a line.
func (r *recording) inWords() string {
	var b strings.Builder
	for i := range r.Of {
		of := &r.Of[i]
		b.WriteString(of.Rule + of.List)
		for _, v := range of.Values {
			b.WriteString(" " + v.Text)
		}
		if key := cmp.Or(of.Hash, of.Model); key != "" { // none of a whole rule
			b.WriteString(" " + key)
		}
		b.WriteString(": " + cmp.Or(of.Before, "none") + " -> " + cmp.Or(of.After, "none"))
		if i+1 < len(r.Of) {
			b.WriteString("; ")
		}
	}
	if r.More > 0 {
		fmt.Fprintf(&b, "; %d more", r.More)
	}
	return b.String()
}

// reveal hashes the keys of a record, and shows no more of their values than nodes have reported of
// keys of the same rule: the configuration's reveal is theirs. If the reports can't be read, it shows
// none.
func (r *recording) reveal(ctx context.Context) {
	shown := map[string][]int{} // by rule, the most characters of each value
	notes, err := r.backend.store.Notes(ctx, store.Reports, r.namespace)
	for i := 0; err == nil && i < len(notes); i++ {
		report, err := wire.DecodeReport(notes[i].Body)
		if err != nil || report.Namespace != r.namespace {
			continue // another version's, or nobody's
		}
		for _, rule := range report.Rules {
			for _, key := range slices.Concat(rule.Used.Keys, rule.Refused.Keys) {
				for at, name := 0, key.Name; len(name) > 0; at++ {
					value, _, rest, ok := wire.NextValue(name)
					if !ok {
						break
					}
					if name = rest; at == len(shown[rule.Name]) {
						shown[rule.Name] = append(shown[rule.Name], 0)
					}
					shown[rule.Name][at] = max(shown[rule.Name][at], utf8.RuneCount(value))
				}
			}
		}
	}
	for i := range r.Of {
		of := &r.Of[i]
		if of.Hash == "" && len(of.values) > 0 {
			id := identity(of.Rule, of.values)
			of.Hash = hex.EncodeToString(id[:])
		}
		if most := shown[of.Rule]; len(most) == len(of.values) {
			for at, value := range of.values {
				text := []rune(strings.ToValidUTF8(value, "\uFFFD"))
				n := min(len(text), most[at], maxShown)
				of.Values = append(of.Values, Value{Text: string(text[:n]), Cut: n < len(text)})
			}
		}
	}
}

// identity is the name of a key where nodes have no secret.
func identity(rule string, values []string) (id wire.ID) {
	var name []byte
	for _, part := range append([]string{rule}, values...) {
		name = append(binary.AppendUvarint(name, uint64(len(part))), part...)
	}
	sum := blake2s.Sum256(name)
	copy(id[:], sum[:])
	return id
}

// Changes returns the records of a namespace since a time, in their order.
func (b *Backend) Changes(ctx context.Context, namespace string, since time.Time) ([]Record, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	notes, err := b.store.Notes(ctx, store.Changes, namespace)
	all := []Record{}
	for _, n := range notes {
		var r Record
		// Another version's, or nobody's: whoever else writes to the store.
		if json.Unmarshal(n.Body, &r) == nil && r.What != "" && !r.At.Before(since) {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b Record) int { return a.At.Compare(b.At) })
	return all, err
}

// once makes a recording one of a call that may come again, and returns the record if the call was
// carried out before. Nobody else's call has the same number.
func (r *recording) once(ctx context.Context, by *By, change *Change) (before *Record, err error) {
	if r == nil || by.Once == "" {
		return nil, nil
	}
	id := identity(strings.Join([]string{r.namespace, by.Known, by.Name, by.Once, change.Rule, fmt.Sprint(change.Grant), string(change.ID[:])}, "\x00"), change.Values)
	r.member = binary.BigEndian.Uint64(id[:])
	notes, err := r.backend.store.Notes(ctx, store.Changes, r.namespace)
	for _, n := range notes {
		var found Record
		if n.Member == r.member && json.Unmarshal(n.Body, &found) == nil {
			before = &found
		}
	}
	return before, err
}

// differences returns what differs between two versions of a namespace's list, but for notices.
func differences(before, after *settings) (of []Changed) {
	overrides := func(all []wire.Override) []wire.Override {
		return slices.DeleteFunc(slices.Clone(all), func(o wire.Override) bool { return o.IsNotice() })
	}
	add := func(c Changed) {
		if c.Before != c.After {
			of = append(of, c)
		}
	}
	both(overrides(before.overrides), overrides(after.overrides), (*wire.Override).Compare, func(before, after *wire.Override) {
		name := cmp.Or(before, after)
		add(Changed{Rule: name.Rule, values: name.Texts(), Before: limitsText(before), After: limitsText(after)})
	})
	both(before.prices, after.prices, (*wire.Price).Compare, func(before, after *wire.Price) {
		name := cmp.Or(before, after)
		add(Changed{List: name.List, Model: name.Model, Before: pricesText(before), After: pricesText(after)})
	})
	return of
}

// both visits the elements of two ordered lists, those that are alike together. One that only one
// list has comes with nil.
func both[T any](a, b []T, compare func(a, b *T) int, visit func(a, b *T)) {
	for len(a) > 0 || len(b) > 0 {
		var x, y *T
		if len(b) == 0 || len(a) > 0 && compare(&a[0], &b[0]) <= 0 {
			x = &a[0]
		}
		if x == nil || len(b) > 0 && compare(x, &b[0]) == 0 {
			y, b = &b[0], b[1:]
		}
		if x != nil {
			a = a[1:]
		}
		visit(x, y)
	}
}

// limitsText has the mode and the limits of an override as the command line has them.
func limitsText(o *wire.Override) string {
	if o == nil {
		return ""
	}
	var parts []string
	if o.Mode > wire.Configured && o.Mode.IsWhole() {
		parts = append(parts, wire.ModeNames[o.Mode])
	}
	for _, l := range o.Limits {
		text := fmt.Sprintf("%d/%s", l.Max, span(l.WidthMillis))
		if l.Burst != 0 {
			text += fmt.Sprintf("/%d", l.Burst)
		}
		parts = append(parts, text)
	}
	if p, ok := wire.PatternOf(o.Values); ok && o.Mode == wire.OfKeys {
		parts = append(parts, "by", PatternNames[p.Kind])
	}
	if o.Until != 0 {
		parts = append(parts, "until", time.UnixMilli(int64(min(o.Until, wire.MaxHits))).UTC().Format(time.RFC3339))
	}
	return strings.Join(parts, " ")
}

func pricesText(p *wire.Price) string {
	if p == nil {
		return ""
	}
	var parts []string
	for _, k := range p.Kinds {
		if k.Kind >= 1 && k.Kind <= uint64(len(usage.KindNames)) {
			text := strconv.FormatFloat(float64(k.Millionths)/1e6, 'f', -1, 64)
			parts = append(parts, usage.KindNames[k.Kind-1]+"="+text)
		}
	}
	return strings.Join(parts, " ")
}

// span writes a width as configurations do, in the largest unit that it has a whole number of.
func span(millis uint64) string {
	for _, unit := range []struct {
		millis uint64
		name   string
	}{{24 * 3_600_000, "d"}, {3_600_000, "h"}, {60_000, "m"}, {1000, "s"}} {
		if millis%unit.millis == 0 {
			return strconv.FormatUint(millis/unit.millis, 10) + unit.name
		}
	}
	return strconv.FormatUint(millis, 10) + "ms"
}
