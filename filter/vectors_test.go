package filter_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/must"
	"weir/window/windowtest"
)

// Each vector is decided as it says, by two workers in turns.
func TestVectors(t *testing.T) {
	for _, vector := range windowtest.Vectors(t) {
		p := newProxy(t)
		configuration := costly(`"cost": {"header": "x-cost", "least": 0}`, string(vector.Limits[1:len(vector.Limits)-1]))
		workers := []*fakeVM{p.start(configuration), p.start(configuration)}
		for i, step := range vector.Steps {
			p.now = step.Time(t, time.Unix(0, monday)).UnixNano()
			v := workers[i%2]
			must.Equal(t, v.send("x-user", step.Key, "x-cost", fmt.Sprint(step.Cost)), step.Allowed, "%s\nstep %d: passed", vector.Name, i)
			want(t, v.headers(), step.Fields())
		}
	}
}
