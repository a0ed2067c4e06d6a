package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"weir/internal/wire"
)

// Documents is the part of a store that keeps what is not counted by limits: a namespace's list of
// overrides, the notes of its members, and the usage of its keys. The store does not interpret
// their bytes.
type Documents interface {
	// Overrides returns a namespace's list and its version; an empty list and 0 if there has never
	// been one. If known is the version, the list is left out.
	Overrides(ctx context.Context, namespace string, known uint64) (list []byte, version uint64, err error)

	// SetOverrides replaces a namespace's list if it has the version from; the new list may be
	// empty. If the list has another version, the error wraps [ErrChanged]. The new version is the
	// store's time in microseconds since the Unix epoch or, if that is not above from, from + 1. So
	// versions ascend even if a list was lost in between. After any other error the list may have
	// been replaced.
	SetOverrides(ctx context.Context, namespace string, from uint64, list []byte) (version uint64, err error)

	// Note keeps a member's note on a topic until its next one, and for as long as the topic's
	// [Terms] say. If a namespace has as many notes as they allow, those of further members are
	// dropped, or make the oldest go if the topic is a log. Of [Nodes] it returns how many are active, counting the note's member in any case.
	Note(ctx context.Context, topic Topic, namespace string, note Note) (nodes uint64, err error)

	// Notes returns a namespace's notes on a topic, in no order; none of [Nodes], which are only
	// counted. Nobody may change their bodies.
	Notes(ctx context.Context, topic Topic, namespace string) ([]Note, error)

	// Account adds a sender's usage message, as a whole or not at all, and only once: the same
	// atomic step also records its sequence. A message is ignored if the recorded sequence of its
	// sender is not lower. Days are converted by [Calendar.UsedDay], and rows added by [UsedDay.Add]. A
	// sum stays within wire.MaxHits of zero. The budget of a label is that of the latest row that
	// has one.
	//
	// If the message violates [CheckUsed], the error wraps [ErrInvalid] and nothing has changed.
	// After any other error it may have been added: send it again unchanged, within UsedSenderLife.
	Account(ctx context.Context, u *wire.Used) (Accounted, error)

	// Used calls visit for each label of a namespace on the days from from to to, in no order, on
	// the caller's goroutine. If visit returns an error, Used stops and returns it.
	Used(ctx context.Context, namespace string, from, to uint32, visit func(wire.UsedRow) error) error
}

// Topic is what notes are about.
type Topic uint8

const (
	// Nodes are the active nodes of a namespace. Their notes are empty.
	Nodes Topic = iota
	// AppliedLists has each node's [AppliedList].
	AppliedLists
	// Reports are the senders' reports on their keys, encoded by package wire.
	Reports
	// Changes are records of what people have changed. A member is a change.
	Changes
	// Rules are what nodes have told of their rules. A member is what was told, by its digest.
	Rules
	// Namespaces are those that nodes have reported in. A store keeps them in one namespace of its own.
	Namespaces
	// Tellers has what each sender of usage has told last.
	Tellers
	// Topics is how many topics there are.
	Topics
)

const (
	// NodeLife is how long a node counts as active after it has joined again.
	NodeLife = 2 * time.Minute
	// Newcomer is how long a node counts as active after it has joined for the first time. An
	// invented identity that is not used again is so soon forgotten.
	Newcomer = 10 * time.Second
	// MaxNodes is the most active nodes of a namespace.
	MaxNodes = 4096
	// AppliedLife is how long a node's note on its list of overrides is kept.
	AppliedLife = time.Minute
	// ReportLife is how long a report is kept.
	ReportLife = 30 * time.Second
	// MaxReports is the most reports of a namespace.
	MaxReports = 512
	// ChangeLife is how long the record of a change is kept: 13 months.
	ChangeLife = 396 * 24 * time.Hour
	// MaxChanges is the most records of a namespace.
	MaxChanges = 10_000
	// MaxChange is the most bytes of a record.
	MaxChange = 4096
	// RulesLife is how long it is kept what nodes have told of their rules, and in which namespaces,
	// after the last of them has reported.
	RulesLife = 31 * 24 * time.Hour
	// MaxRules is the most that a namespace's nodes have told of their rules: one for each of their
	// configurations.
	MaxRules = 16
	// MaxNamespaces is the most namespaces that a store remembers.
	MaxNamespaces = 4096
	// maxNamespace is the most bytes of a note on a namespace.
	maxNamespace = 128
	// MaxTellers is the most senders of usage that a namespace remembers: 100 Envoys of 8 workers, and 90 that
	// end without a word on each of 36 days.
	MaxTellers = 4096
	// maxTeller is the most bytes of a note on one.
	maxTeller = 64
)

// Terms bound the notes on a topic.
type Terms struct {
	name string
	// Life is how long a note is kept, and Newcomer how long if its member had none before.
	Life, Newcomer time.Duration
	// Most is the most notes of a namespace, and MaxBytes the largest size of each.
	Most, MaxBytes int
	// Log means that the oldest note of a namespace goes if another has no room, or a little
	// later, and that a file keeps notes. More may go with it, up to a sixteenth of Most. A
	// store may bound its notes by their bytes, and then of all namespaces those that take most make room.
	Log bool
}

var terms = [Topics]Terms{
	Nodes:        {"nodes", NodeLife, Newcomer, MaxNodes, 0, false},
	AppliedLists: {"applied lists", AppliedLife, AppliedLife, MaxNodes, 64, false},
	Reports:      {"reports", ReportLife, ReportLife, MaxReports, wire.MaxReport, false},
	Changes:      {"changes", ChangeLife, ChangeLife, MaxChanges, MaxChange, true},
	Rules:        {"rules", RulesLife, RulesLife, MaxRules, wire.MaxTold + 8, true},
	Namespaces:   {"namespaces", RulesLife, RulesLife, MaxNamespaces, maxNamespace, true},
	Tellers:      {"tellers", UsedDays * 24 * time.Hour, UsedDays * 24 * time.Hour, MaxTellers, maxTeller, true},
}

// Terms returns the bounds of a topic's notes.
func (t Topic) Terms() Terms { return terms[t] }

// String returns the topic's name.
func (t Topic) String() string { return terms[t].name }

// Note is what a member of a namespace has to say on a topic: a node, or a sender.
type Note struct {
	Member uint64
	Body   []byte
	// Asks means that the note is not kept, because its member only asks how many there are.
	Asks bool
}

// Join records that a node is active in a namespace, and returns how many nodes are.
func Join(ctx context.Context, s Documents, namespace string, node uint64) (nodes uint64, err error) {
	return s.Note(ctx, Nodes, namespace, Note{Member: node})
}

// CountNodes returns how many nodes are active in a namespace, counting node in any case. It
// records nothing.
func CountNodes(ctx context.Context, s Documents, namespace string, node uint64) (nodes uint64, err error) {
	return s.Note(ctx, Nodes, namespace, Note{Member: node, Asks: true})
}

// AppliedList says by which list of overrides a node decides.
type AppliedList struct {
	Node uint64
	// Version is that of the list; 0 if the node has none.
	Version uint64
	// Unfit is how many of its overrides the node can't apply.
	Unfit uint64
}

// Note returns the note that says so. No list has a version above the largest that it can have.
func (a AppliedList) Note() Note {
	return Note{Member: a.Node, Body: fmt.Appendf(nil, "%d %d", min(a.Version, maxInteger), min(a.Unfit, maxInteger))}
}

// RulesNote returns the note on what nodes have told of their rules, and when one was last heard.
func RulesNote(digest uint64, at time.Time, told []byte) Note {
	return Note{Member: digest, Body: append(binary.LittleEndian.AppendUint64(nil, uint64(max(0, at.Unix()))), told...)}
}

// RulesOf reads such a note.
func RulesOf(n Note) (at time.Time, told []byte) {
	if len(n.Body) < 8 {
		return at, nil
	}
	return time.Unix(int64(min(binary.LittleEndian.Uint64(n.Body), 1<<40)), 0), n.Body[8:]
}

// maxInteger is the largest integer that all stores have.
const maxInteger = 1<<63 - 1

// ReadApplied returns by which lists a namespace's nodes decide, in no order.
func ReadApplied(ctx context.Context, s Documents, namespace string) (all []AppliedList, err error) {
	notes, err := s.Notes(ctx, AppliedLists, namespace)
	for _, n := range notes {
		a := AppliedList{Node: n.Member}
		if _, err := fmt.Sscanf(string(n.Body), "%d %d", &a.Version, &a.Unfit); err == nil { // else another program's
			all = append(all, a)
		}
	}
	return all, err
}

// MaxOverridden is the most namespaces with a list in a store in memory.
const MaxOverridden = 1024

// ErrChanged is wrapped by the error of replacing a list whose version has changed.
var ErrChanged = errors.New("someone else has changed the list meanwhile")

// NextVersion returns the version of a list that replaces one with version from.
func NextVersion(from uint64, now time.Time) uint64 {
	return max(from+1, uint64(max(0, now.UnixMicro())))
}

// CheckOverrides returns an error that wraps [ErrInvalid] if a namespace's list is invalid, as far
// as a store can tell.
func CheckOverrides(namespace string, list []byte) error {
	return checkDocument("overrides: want a list of", namespace, list, wire.MaxOverridesSize)
}

// CheckNote returns an error that wraps [ErrInvalid] if a note is invalid, as far as a store can
// tell.
func CheckNote(topic Topic, namespace string, note Note) error {
	return checkDocument(topic.String()+": want", namespace, note.Body, topic.Terms().MaxBytes)
}

func checkDocument(wants, namespace string, body []byte, most int) error {
	if len(body) > most {
		return fmt.Errorf("%w: %s at most %d bytes, got %d", ErrInvalid, wants, most, len(body))
	}
	return checkNamespace(namespace)
}

func checkNamespace(namespace string) error {
	if !wire.IsNamespace(namespace) {
		return fmt.Errorf("%w: namespace: want 1 to %d of A-Za-z0-9._-, got %.80q", ErrInvalid, wire.MaxNamespace, namespace)
	}
	return nil
}
