package sharedata

// Record is a value of shared data that the workers of a process change together, such as what they
// know of a backend. It is not safe for concurrent use.
type Record struct {
	data Data
	key  []byte
}

// Number makes it the record that has another last byte in its name, as one of a series has.
func (r *Record) Number(n byte) { r.key[len(r.key)-1] = n }

// recordAttempts is how often an update is tried while other workers write the same record. Each
// failure means that another worker has written.
const recordAttempts = 64

// NewRecord returns the record with a name. No page of a table has such a name. Different versions
// of a program share it, so a change of what a record has takes another name.
//
//go:noinline
func NewRecord(data Data, namespace, name string) Record {
	key := append(append([]byte("weir:"), namespace...), ':')
	return Record{data: data, key: append(key, name...)}
}

// Read returns the record's value, in the memory of buffer as [Data] has it, and its number. The
// value is nil if nobody has written the record.
//
//go:noinline
func (r *Record) Read(buffer []byte) (value []byte, cas uint32) {
	value, cas, found := r.data.Get(r.key, buffer)
	if !found {
		return nil, CreateOnly
	}
	return value, cas
}

// Update writes what change makes of the record's value, and reports whether that was written.
// change gets the value as Read returns it, and runs again if another worker was faster. If it
// returns false, the record stays as it is.
//
//go:noinline
func (r *Record) Update(buffer []byte, change func(value []byte) (next []byte, ok bool)) (written bool) {
	for range recordAttempts {
		value, cas := r.Read(buffer)
		if value, written = change(value); !written || r.data.Set(r.key, value, cas) {
			return written
		}
	}
	return false
}
