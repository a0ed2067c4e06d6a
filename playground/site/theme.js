// The theme is the system's, unless the visitor chooses another.
const key = "weir-theme";

export function themes(select, changed) {
  const apply = (theme) => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    changed();
  };
  select.value = ["light", "dark"].includes(kept()) ? kept() : "system";
  select.addEventListener("change", () => {
    keep(select.value);
    apply(select.value);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  apply(select.value);
}

// A browser may refuse to store anything.
function kept() {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function keep(theme) {
  try {
    localStorage.setItem(key, theme);
  } catch {
    // Then the choice lasts as long as the page.
  }
}
