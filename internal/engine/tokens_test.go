package engine_test

import (
	"slices"
	"testing"
	"time"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/link"
	"weir/internal/failure"
	"weir/internal/must"
	"weir/window"
)

// most is the most tokens that a bucket lacked which has seen the requests that passed at these
// times. Parts of a token count.
func most(bucket window.Limit, passed []int64) (most float64) {
	slices.Sort(passed)
	lacks, last := 0.0, int64(0)
	for _, at := range passed {
		lacks = max(0, lacks-float64(at-last)*float64(bucket.Max)/float64(bucket.Width)) + 1
		last, most = at, max(most, lacks)
	}
	return most
}

// Answers are lost, so that pushes are sent again and grants come when tokens have come back that
// they were of. No more pass than the bucket has.
func TestTokensWhoseAnswersAreLost(t *testing.T) {
	for _, rate := range []int64{0, second, 5 * second} {
		for _, perSecond := range []uint64{10, 100} {
			for _, loss := range []float64{0.1, 0.3, 0.6} {
				bucket := window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: minute}, Max: 60 * perSecond, Burst: 20}
				w := newWorld(t, 5, 1, rate, engine.Options{OnBackendFailure: failure.Deny}, all(bucket))
				w.advance(time.Second)
				var passed []int64
				for i := range 6000 {
					w.lossAfter = loss
					if i%100 > 90 {
						w.lossAfter = 0 // or the backend would be left alone most of the time
					}
					if i%300 < 200 { // the bucket is full again after a pause
						for range w.random.IntN(4) {
							if w.any().send("") {
								passed = append(passed, w.now)
							}
						}
					}
					w.advance(20 * time.Millisecond)
				}
				must.AtMost(t, most(bucket, passed), 21, "sync rate %v, %d tokens a second, loss %v: tokens that a bucket of 20 lacked", time.Duration(rate), perSecond, loss)
				must.AtLeast(t, len(passed), 120*int(perSecond)/15, "sync rate %v, %d tokens a second, loss %v: passed", time.Duration(rate), perSecond, loss)
			}
		}
	}
}

// Answers need a while, less than the timeout. Requests that wait for them are decided by the
// backend's bucket as it was then. Hits that are leased for others have worn when they come.
func TestTokensWhoseAnswersAreLate(t *testing.T) {
	for _, late := range []time.Duration{20 * time.Millisecond, 200 * time.Millisecond, 900 * time.Millisecond} {
		for _, perSecond := range []uint64{10, 30, 200} {
			for _, burst := range []uint64{20, 200} {
				bucket := window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: minute}, Max: 60 * perSecond, Burst: burst}
				w := newWorld(t, 5, 1, second, engine.Options{OnBackendFailure: failure.Deny, Timeout: 2 * second}, all(bucket))
				w.advance(time.Second)
				type answer struct {
					node         *fakeNode
					ticket       engine.Ticket
					body         []byte
					decided, due int64
				}
				var answers []answer
				var waiting []*fakeRequest
				var passed []int64
				for step := range 12_000 {
					w.pass(5 * time.Millisecond)
					if step%2000 < 1500 { // the bucket is full again after a pause
						for range w.random.IntN(int(perSecond/50) + 2) {
							switch r, verdict := w.any().request(""); verdict {
							case counter.Allowed:
								passed = append(passed, w.now)
							case counter.Unsure:
								waiting = append(waiting, r)
							}
						}
					}
					for _, f := range w.nodes {
						f.tick()
						for _, p := range f.taken() {
							// Some are as late as can be, others come at once.
							due := w.now + w.random.Int64N(2)*int64(late)
							answers = append(answers, answer{f, p.ticket, w.apply(p.body), w.now, due})
						}
					}
					answers = slices.DeleteFunc(answers, func(a answer) bool {
						if a.due > w.now {
							return false
						}
						a.node.Answered(a.ticket, link.PushAnswered, a.body)
						waiting = slices.DeleteFunc(waiting, func(r *fakeRequest) bool {
							if len(r.verdicts) > 0 && r.verdicts[0] == counter.Allowed {
								passed = append(passed, a.decided)
							}
							return len(r.verdicts) > 0
						})
						return true
					})
				}
				must.AtMost(t, most(bucket, passed), float64(burst)+1, "%v late, %d tokens a second: tokens that a bucket of %d lacked", late, perSecond, burst)
				must.AtLeast(t, len(passed), 60*int(perSecond)/4, "%v late, %d tokens a second, burst %d: passed", late, perSecond, burst)
			}
		}
	}
}
