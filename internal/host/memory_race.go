//go:build race && linux

package host

import (
	"context"
	"syscall"

	"github.com/tetratelabs/wazero/experimental"
)

// withMemory gives a VM linear memory outside of the heap of Go. The race detector watches the heap
// alone. Each VM's memory belongs to one goroutine at a time, and to watch it took a third of the time
// of e2e.
func withMemory(ctx context.Context) context.Context {
	return experimental.WithMemoryAllocator(ctx, experimental.MemoryAllocatorFunc(
		func(_, most uint64) experimental.LinearMemory {
			reserved, err := syscall.Mmap(-1, 0, int(most), syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
			if err != nil {
				return mapped(nil) // and the guest gets no memory
			}
			return mapped(reserved)
		}))
}

// mapped is address space, which becomes memory up to the guest's size.
type mapped []byte

func (m mapped) Reallocate(size uint64) []byte {
	if size > uint64(len(m)) || syscall.Mprotect(m[:size], syscall.PROT_READ|syscall.PROT_WRITE) != nil {
		return nil
	}
	return m[:size]
}

func (m mapped) Free() { _ = syscall.Munmap(m) }
