package redis

import (
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/store/far"
	"weir/internal/wire"
)

// The senders of a namespace that advance hits are its fleet. RATIONALE.md proves why no more than the
// limit passes, and how a fleet on Redis differs from a fleet in memory. Backends decide which limits' hits
// are advanced. All that changes more often is decided by commit.lua: parts, versions, and which keys are
// near.

//go:embed fleet.lua
var fleetSource string

var fleetScript = goredis.NewScript(fleetSource)

const (
	// lateNanos is how late commit.lua notes a sender's answers: by so few notes silent senders are known later.
	lateNanos = uint64(3e9)
	// fleetTries is how often a fleet is changed in vain, as others were quicker.
	fleetTries = 16
	// seenFleets is how many namespaces' fleets, and walks, are remembered at least, and seenNear how many near keys.
	seenFleets = 1024
	seenNear   = 4 * wire.MaxNearKeys
)

var errFleet = errors.New("a fleet: others were quicker too often")

// fleet has the decisions of backends about a fleet, as they were seen. Nobody changes it.
type fleet struct {
	far.List
	revision string // "" if there is no fleet
	version  uint64 // at that time
}

var noFleet = &fleet{}

// parseFleet reads what a script says of a fleet.
func parseFleet(reply []any) (*fleet, error) {
	all, err := texts(reply)
	if err != nil || len(all) != 3 {
		return nil, errReply
	}
	if all[0] == "" {
		return noFleet, nil
	}
	f := &fleet{revision: all[0]}
	f.List, _ = far.Parse([]byte(all[2])) // somebody else may have written it
	if f.version, err = strconv.ParseUint(all[1], 10, 64); err != nil {
		return nil, errReply
	}
	return f, nil
}

// fleet is that of a namespace, as far as this backend knows.
func (s *Store) fleet(namespace string) *fleet {
	if f, ok := s.fleets.get(namespace); ok {
		return f
	}
	return noFleet
}

func (s *Store) seeFleet(namespace string, f *fleet) { s.fleets.put(namespace, f, 1) }

// nanos is about the time of the server; 0 before it has told that.
func (s *Store) nanos() uint64 {
	if s.now != nil {
		return uint64(s.now().UnixNano())
	}
	if micros, heard := s.committer.clocks[0].now(); heard {
		return uint64(micros) * 1000
	}
	return 0
}

// changeFleet changes the list of a fleet, and makes a fleet if there is none. change changes a copy, as of a new version,
// and reports whether it has.
func (s *Store) changeFleet(ctx context.Context, namespace string, change func(f *far.List, version, now uint64) bool, gone ...string) error {
	for range fleetTries {
		was, now := s.fleet(namespace), s.nanos()
		f, version := was.Clone(), max(was.version+1, now/1000)
		if !change(&f, version, now) && was != noFleet {
			return nil
		}
		if f.Epoch == 0 {
			f.Epoch = rand.Uint64() | 1
		}
		contents, err := json.Marshal(&f)
		if err != nil {
			return err
		}
		revision := strconv.FormatUint(rand.Uint64(), 36)
		args := []any{was.revision, revision, contents, version, f.PartsLast()/1e6 + 3600_000}
		for _, key := range gone {
			args = append(args, key)
		}
		reply, err := fleetScript.Run(ctx, s.client, s.keys.fleet(namespace), args...).Slice()
		if err != nil {
			return err
		}
		is, err := parseFleet(reply)
		if err != nil {
			return err
		}
		if s.seeFleet(namespace, is); is.revision == revision {
			return nil
		}
	}
	return errFleet
}

// askFleet notes the rooms that a push asks for. A word on advanced hits makes a fleet. If that fails, another push does it.
func (s *Store) askFleet(ctx context.Context, p *wire.Push) {
	if s.keys.partitions > 1 {
		return
	}
	f, now := s.fleet(p.Namespace), s.nanos()
	if now == 0 || f == noFleet && !p.Advance.Present {
		return
	}
	if f == noFleet || anyRoom(p, func(room *wire.Room) bool { return f.Lacks(room, now) }) {
		_ = s.changeFleet(ctx, p.Namespace, func(f *far.List, version, now uint64) bool {
			return anyRoom(p, func(room *wire.Room) bool { return f.Ask(room, version, now) })
		})
	}
}

// anyRoom reports whether something holds for any room that a push asks for, each of which is asked.
func anyRoom(p *wire.Push, is func(room *wire.Room) bool) (found bool) {
	for i := range p.Takes {
		for j := range p.Takes[i].Rooms {
			found = is(&p.Takes[i].Rooms[j]) || found
		}
	}
	return found
}

// member is a near key in Redis's list.
func member(k far.Key) string {
	number := k.Number << 1
	if k.Full {
		number++
	}
	b := append(binary.LittleEndian.AppendUint64(nil, k.Limit), k.ID[:]...)
	return string(binary.LittleEndian.AppendUint64(b, number))
}

// parseMember reads a member of Redis's list.
func parseMember(member string) (k far.Key, ok bool) {
	b := []byte(member)
	if len(b) != 8+len(k.ID)+8 {
		return k, false
	}
	copy(k.ID[:], b[8:])
	number := binary.LittleEndian.Uint64(b[8+len(k.ID):])
	k.Limit, k.Number, k.Full = binary.LittleEndian.Uint64(b), number>>1, number&1 == 1
	return k, true
}
