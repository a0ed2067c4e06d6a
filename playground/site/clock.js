// Clock is the page's time, in nanoseconds. It advances with the frames that the browser draws, so
// it stands still while the page is hidden, or by steps.
export class Clock {
  #frame;
  #last = 0;
  paused = true;
  speed = 1; // the page's time relative to the browser's

  // onTick is called with the time that has passed.
  constructor(onTick) {
    this.onTick = onTick;
  }

  run() {
    if (!this.paused) return;
    this.paused = false;
    this.#last = performance.now();
    const frame = (now) => {
      this.#frame = requestAnimationFrame(frame);
      const passed = now - this.#last;
      this.#last = now;
      // After it was hidden, a page continues where it stood.
      this.onTick(Math.round(Math.max(0, Math.min(passed, 100)) * 1e6 * this.speed));
    };
    this.#frame = requestAnimationFrame(frame);
  }

  pause() {
    this.paused = true;
    cancelAnimationFrame(this.#frame);
  }

  step(nanos) {
    this.onTick(nanos);
  }
}
