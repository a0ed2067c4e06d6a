package envoytest

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

//go:embed preload/clock.c
var clockSource []byte

// Clock is the wall clock of an Envoy, set by a test. At first it shows the machine's time.
type Clock struct {
	library string
	file    *os.File
}

// NewClock creates a clock in an existing folder. It needs Linux and a C compiler.
func NewClock(dir string) (*Clock, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("a clock for Envoy: want linux, got %s", runtime.GOOS)
	}
	c := &Clock{library: filepath.Join(dir, "clock.so")}
	source := filepath.Join(dir, "clock.c")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return nil, err
	}
	if output, err := exec.Command("cc", "-O2", "-shared", "-fPIC", "-o", c.library, source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("a clock for Envoy: cc: %w; install a C compiler: apt-get install gcc libc6-dev\n%s", err, output)
	}
	var err error
	if c.file, err = os.Create(filepath.Join(dir, "clock")); err != nil {
		return nil, err
	}
	return c, c.set(0, 0)
}

// Stop stops the clock at a time, which must not be before 1970.
func (c *Clock) Stop(at time.Time) error { return c.set(at.UnixNano(), 0) }

// Run lets the clock run, ahead of the machine's clock by a duration.
func (c *Clock) Run(ahead time.Duration) error { return c.set(0, int64(ahead)) }

// Close closes the clock's file. A running Envoy keeps its clock.
func (c *Clock) Close() error { return c.file.Close() }

func (c *Clock) set(still, ahead int64) error {
	page := binary.NativeEndian.AppendUint64(nil, uint64(still))
	_, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(page, uint64(ahead)), 0)
	return err
}

func (c *Clock) environment() []string {
	return append(os.Environ(), "LD_PRELOAD="+c.library, "WEIR_TEST_CLOCK="+c.file.Name())
}
