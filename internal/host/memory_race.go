//go:build race && linux

package host

import (
	"context"
	"syscall"

	"github.com/tetratelabs/wazero/experimental"
)

// withMemory allocates a VM's linear memory outside of Go's heap, where the race detector doesn't
// watch it. Only one goroutine at a time uses a VM's memory, and watching it took a third of e2e's
// time.
func withMemory(ctx context.Context) context.Context {
	return experimental.WithMemoryAllocator(ctx, experimental.MemoryAllocatorFunc(
		func(_, most uint64) experimental.LinearMemory {
			reserved, err := syscall.Mmap(-1, 0, int(most), syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
			if err != nil {
				return mapped(nil) // so the guest gets no memory
			}
			return mapped(reserved)
		}))
}

// mapped is reserved address space. Its pages become usable as the guest's memory grows.
type mapped []byte

func (m mapped) Reallocate(size uint64) []byte {
	if size > uint64(len(m)) || syscall.Mprotect(m[:size], syscall.PROT_READ|syscall.PROT_WRITE) != nil {
		return nil
	}
	return m[:size]
}

func (m mapped) Free() { _ = syscall.Munmap(m) }
