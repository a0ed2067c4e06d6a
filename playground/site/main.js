import { Clock } from "./clock.js";
import { load } from "./engine.js";
import { byID } from "./parts.js";
import { Playground } from "./playground.js";
import { Run } from "./run.js";
import { themes } from "./theme.js";
import { Watch } from "./watch.js";

// views are the live views, by the name in live.json.
const views = { run: () => new Run(), serve: (of) => new Watch(of) };

// view shows the view that the address names. The live view exists only where a server has it.
async function view() {
  if (document.documentElement.dataset.embed !== undefined) return;
  const of = await (await fetch("live.json")).json();
  const { live, traffic } = of;
  // A person who has sent requests, or has proxies, wants to see them, unless the address names
  // another view.
  if (live && traffic && !location.hash && !location.search) history.replaceState(null, "", "#live");
  byID("views").hidden = !live;
  const behind = views[live]?.(of);
  const show = () => {
    const named = live && location.hash === "#live" ? "live" : "playground";
    for (const link of byID("views").children) {
      const on = link.hash === `#${named}`;
      if (on) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
      byID(link.hash.slice(1)).hidden = !on;
    }
    byID("foot").hidden = named === "live";
    byID("skip").hash = named === "live" ? "#live" : "#controls";
    behind?.show(named === "live");
  };
  addEventListener("hashchange", show);
  show();
}

async function engine() {
  const response = await fetch("engine.wasm");
  if (!response.ok) throw new Error("it is not here. make build builds it, and make playground copies it.");
  return load(await response.arrayBuffer());
}

async function start() {
  // A page that others frame shows a single lane, and nothing that has effects.
  if (new URLSearchParams(location.search).has("embed")) {
    document.documentElement.dataset.embed = "";
    document.querySelector("#playground .intro").classList.add("unseen");
  }
  try {
    const playground = new Playground(await engine(), Clock);
    themes(byID("theme"), () => playground.recolor());
    // For the console, and for tests, which move the time.
    globalThis.playground = playground;
  } catch (error) {
    byID("missing").textContent = `The playground can’t load its engine: ${error.message}`;
    byID("missing").hidden = false;
    themes(byID("theme"), () => {});
  }
  await view();
  document.documentElement.dataset.ready = "";
}

start();
