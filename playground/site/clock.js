// Clock is the page's time, in nanoseconds. It goes on with the frames that the browser draws, so that
// it stands while nobody looks; or by steps.
export class Clock {
  #frame;
  #last = 0;
  paused = true;
  speed = 1; // of the page's time, beside the browser's

  // onTick is called with how much time has passed.
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
      // A page that was hidden goes on where it stood.
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
