package browser

import (
	"strconv"
	"testing"
)

// BenchmarkFrame draws all lanes with 1,000 requests in view, as often as the browser asks, and by
// itself. At 60 frames a second a frame has 16.7 ms.
func BenchmarkFrame(b *testing.B) {
	p := open(b, site, desktop)
	p.choose("window", "60")
	p.run(`playground.clock.pause(); playground.world.setRate(1000 / (2.4 * 60)); playground.clock.step(300e9)`)
	inView := value[float64](p, `playground.world.requests.filter((r) => r.at > playground.world.now - 2.4 * playground.world.window).length`)
	if inView < 999 {
		b.Fatalf("%v requests are in view", inView)
	}
	drawn := value[float64](p, `{
		const n = `+strconv.Itoa(max(b.N, 200))+`, began = performance.now();
		for (let i = 0; i < n; i++) playground.draw();
		(performance.now() - began) / n;
	}`)
	b.ReportMetric(inView, "hits-in-view")
	b.ReportMetric(drawn, "ms/drawing")
	// The frames that there are, and the longest time between two of them.
	paced := value[[]float64](p, `new Promise((done) => {
		playground.clock.run();
		const gaps = [];
		let last;
		requestAnimationFrame(function frame(now) {
			if (last !== undefined) gaps.push(now - last);
			last = now;
			if (gaps.length < 240) requestAnimationFrame(frame);
			else done([gaps.length * 1000 / gaps.reduce((a, b) => a + b), gaps.sort((a, b) => a - b)[Math.floor(gaps.length * 0.99)]]);
		});
	})`)
	b.ReportMetric(paced[0], "frames/s")
	b.ReportMetric(paced[1], "ms/frame-p99")
}
