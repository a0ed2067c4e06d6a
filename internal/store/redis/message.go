package redis

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"weir/internal/store/far"
	"weir/internal/wire"
)

// The arguments of commit.lua are messages, one after the other. A message's type is the list of its fields: in the
// script plan.lock is the place of a plan's Lock, and plan.size is how many fields a plan has.
type (
	// plan comes first, then its pushes, its counters, and unless fleet is at most 1, what is decided about the fleet.
	plan struct {
		// Decided is when it was decided by this server's clock, in microseconds; "" for no matter when.
		Decided          string
		Pushes, Counters int
		// Lock is the caller's name for a lock, "" if there is no lock to look at. With Locks the script locks if it can't
		// write.
		Lock  string
		Locks bool
		// New is how many counters, the first ones, have windows and most likely are new: all of these are looked for at
		// once.
		New int
		// Fleet is how many keys of the fleet there are: 0 to leave it alone, 1 if none was seen.
		Fleet int
	}
	push struct {
		// Sequence is "" to only keep the record of a push that was applied before.
		Sequence string
		Floor    uint64
		Part     string
		// Life is how long the record must live, in ms; negative if it is known to live that long unless it is new.
		Life    int64
		Granted string // what the push's takes were granted
	}
	// hash is a counter that must be as expected. Set fields and values follow, and the fields to remove.
	hash struct {
		Form, Expected string // all fields and values in one text
		Life           string // in ms; "" to leave it, or unchanged
		Anew           bool
		Set, Removed   int
	}
	// log is a counter whose last bytes must be as expected.
	log struct {
		Form     string
		Bytes    int
		Expected string
		Life     string
		Records  string
	}
	// windows is a counter to which hits are added. The numbers of its windows follow, then the most hits that each may
	// have, then the hits to add to each. Windows below Kept go; there may be no others.
	windows struct {
		Form  string
		Count int
		Life  string
		Kept  uint64
	}
	// lone comes first in the arguments of lone.lua, then what was seen of a fleet with at most one word, then one for counters
	// that are alike.
	lone struct {
		Decided  string // as that of a plan
		Sequence string // "" if the push only reads
		Floor    uint64
		Part     string
		Granted  string
		New      int // as that of a plan, up to 1000
		Counters int
		Fleet    bool // one was seen
	}
	// one is Count counters, one after the other. Most is the most hits that the window may have had, MostBefore those of the
	// window before. Others is how many other windows each has. Without Hits it is only read.
	one struct {
		Count      int
		Life       string
		Hits       int64
		Window     uint64
		Most       int64
		Before     string // "" if that window does not count
		MostBefore int64
		Others     int
	}
	// list is that of a fleet, by which the pushes were decided. So many words, marks and leaves follow.
	list struct {
		Revision string // as seen
		Now      string // in microseconds; "" for the server's time
		Lasts    uint64 // how long silent senders' parts last, in microseconds
		Words    int
		Marks    int
		Leaves   int
		Later    bool // a later script of the push has its word, and checks the senders
	}
	// word is a push's on advanced hits.
	word struct {
		Sender           string
		Divisor, Version uint64
		Sequence         uint64
		Settled, Wants   bool
		Same             bool // the sender's list is of the fleet's epoch
	}
	// mark lists a near key by "+", and a spare one by "~" if there is much room. It takes one off by "-".
	mark struct{ Key, To string }
	// leaves is how many hits of a key takes leave to senders that may have advanced them.
	leaves struct {
		Key      string
		Since    string // when the rule was listed, "" if the limit is not
		Unlisted uint64 // when the limit was taken off last
		Limit    uint64
		Owing    uint64 // when a silent sender that owes hits had an answer at least, in microseconds
		Hits     uint64
		Exact    bool // no fewer may be enough
	}
)

const (
	// unchanged is the Life of a counter that is not written.
	unchanged = "="

	formHash    = "hash"
	formLog     = "log"
	formWindows = "windows"
)

// add adds a message to arguments.
func add(args []any, message any) []any {
	v := reflect.ValueOf(message)
	for i := range v.NumField() {
		field := v.Field(i)
		if field.Kind() == reflect.Bool {
			args = append(args, flag(field.Bool()))
			continue
		}
		args = append(args, field.Interface())
	}
	return args
}

func flag(is bool) string {
	if is {
		return "1"
	}
	return ""
}

// maxGrants is the most grants of a sender's record after its script has removed the oldest: twice what the plugin can have without
// an answer. As many pushes as fewPushes have no more, so it does that when a push is so far above the floor, or above that which did
// it last.
const (
	maxGrants = 1 << 14
	fewPushes = maxGrants / wire.MaxItems
)

// commons are what commit.lua has in common with package far, times in microseconds and bounds, and the bounds of grants.
var commons = map[string]uint64{
	"far.late": lateNanos / 1000, "far.silent": (far.SilentAfter + lateNanos) / 1000,
	"far.sweep": far.SweepEvery / 1000, "far.review": far.ReviewEvery / 1000,
	"far.least": far.LeastDivisor, "far.most": far.MostDivisor, "far.whole": far.Whole,
	"far.near": wire.MaxNearKeys, "far.full": far.MostFull, "far.advance": wire.MaxAdvance,
	"grants.most": maxGrants, "grants.pushes": fewPushes,
}

var names = regexp.MustCompile(`\b(far|grants|plan|push|hash|log|windows|lone|one|list|word|mark|leaves)\.[a-z]+\b`)

// placed replaces the names of numbers and of messages' fields in a script.
func placed(source string) string {
	places := make(map[string]uint64)
	for _, message := range []any{plan{}, push{}, hash{}, log{}, windows{}, lone{}, one{}, list{}, word{}, mark{}, leaves{}} {
		t := reflect.TypeOf(message)
		places[t.Name()+".size"] = uint64(t.NumField())
		for i := range t.NumField() {
			places[t.Name()+"."+strings.ToLower(t.Field(i).Name)] = uint64(i)
		}
	}
	return names.ReplaceAllStringFunc(source, func(name string) string {
		n, ok := commons[name]
		if !ok {
			n, ok = places[name]
		}
		if !ok {
			return name // the script then fails
		}
		return strconv.FormatUint(n, 10)
	})
}
