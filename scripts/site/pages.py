"""Hooks of mkdocs: they choose the files of the site, mend links, and make the navigation.

The site has the repository's layout, so that links between pages work. A link to a file that is not
on the site, such as Go code, becomes plain text.
"""

import os
import re
import shutil
import subprocess

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))

# The pages of docs/, in the order of the navigation. Missing pages are left out, and pages without a
# place here come last.
ORDER = """getting-started cookbook playground envoy kubernetes library tokens simulate who-is-limited
convert coming-from comparison faq / configuration commands counters rate-limit-service live native glossary /
how-it-counts leases / backend stores monitoring security / architecture""".split("/")
SECTIONS = ["Guides", "Reference", "Promises", "Operations", "Inside"]

# The landing page has these doors after the first paragraph of the README.
DOORS = """
<div class="doors">
  <a href="{try}"><b>Try</b> See eight ways to limit the same requests, in this browser.</a>
  <a href="docs/getting-started.html"><b>Deploy</b> A limit in front of your own service, in ten minutes.</a>
  <a href="docs/backend.html"><b>Operate</b> How much of what, what to watch, and what a failure does.</a>
</div>
"""


def on_config(config):
    pages = config["docs_dir"]
    shutil.rmtree(pages, ignore_errors=True)
    files = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "*.md", "*.svg", "*.png", "envoy/*.yaml", "charts/weir/files/*"],
        check=True, capture_output=True, text=True,
    ).stdout.split()
    for name in files:
        if "testdata" in name or not os.path.exists(os.path.join(ROOT, name)):
            continue
        target = os.path.join(pages, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(os.path.join(ROOT, name), target)
    shutil.copy(os.path.join(ROOT, "dist/docs-env/package/dist/mermaid.min.js"), pages)
    shutil.copy(os.path.join(ROOT, "scripts/site/site.css"), pages)
    shutil.copy(os.path.join(ROOT, "playground/site/icon.svg"), pages)
    # The playground, if it has been built.
    if os.path.exists(os.path.join(ROOT, "playground/site/engine.wasm")):
        shutil.copytree(os.path.join(ROOT, "playground/site"), os.path.join(pages, "playground"), dirs_exist_ok=True)
    there = {name[5:-3] for name in files if re.fullmatch(r"docs/[^/]+\.md", name)}
    config["nav"] = [{"Weir": "README.md"}]
    left = set(there)
    for title, group in zip(SECTIONS, ORDER):
        names = [name for name in group.split() if name in there]
        left -= set(names)
        if title == SECTIONS[-1]:
            names += sorted(left - {n for g in ORDER for n in g.split()})
        config["nav"].append({title: [f"docs/{name}.md" for name in names]})
    config["nav"].append({"Measured": sorted(n for n in files if n.startswith("bench/") and n.endswith("README.md"))})
    config["nav"].append({"Project": ["CHANGELOG.md", "RATIONALE.md", "CONTRIBUTING.md", "envoy/README.md"]})
    return config


def title_of(path):
    """The first heading of a page of the repository."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as page:
        for line in page:
            if line.startswith("# "):
                return line[2:].strip()
    return path


def synonyms():
    """The words that find a page in the search, by its path."""
    found = {}
    with open(os.path.join(ROOT, "scripts/site/synonyms.txt"), encoding="utf-8") as lines:
        for line in lines:
            if not line.startswith("#"):
                name, words = line.split(": ", 1)
                if not os.path.exists(os.path.join(ROOT, name)):
                    raise SystemExit(f"synonyms.txt: there is no {name}")
                found[name] = words.strip()
    return found


SYNONYMS = synonyms()


def both_themes(markdown, here):
    """A picture with two themes is shown in the theme of the page."""

    def both(match):
        dark = match.group(2).replace("-light-", "-dark-")
        if not os.path.exists(os.path.join(ROOT, here, dark)):
            return match.group(0)
        return f"![{match.group(1)}]({match.group(2)}#only-light)![{match.group(1)}]({dark}#only-dark)"

    return re.sub(r"!\[([^\]]*)\]\(([^)#\s]*-light-[^)#\s]*)\)", both, markdown)


def on_page_markdown(markdown, page, config, files):
    here = os.path.dirname(page.file.src_uri)
    if page.file.src_uri == "README.md":
        there = files.get_file_from_path("playground/index.html")
        doors = DOORS.replace("{try}", "playground/index.html" if there else "docs/playground.html")
        # The README's picture follows the theme of the system, and the site's follows its own.
        markdown = re.sub(r'<picture>.*?<img src="([^"]*)" alt="([^"]*)">\s*</picture>', r"![\2](\1)", markdown, flags=re.S)
        head, rest = markdown.split("\n\n", 1)
        promise, rest = rest.split("\n\n", 1)
        markdown = "\n\n".join([head, promise, doors, rest])
    markdown = both_themes(markdown, here)
    if words := SYNONYMS.get(page.file.src_uri):
        page.meta["search"] = {"boost": 3}  # before pages that only mention the word
        head, rest = markdown.split("\n", 1)
        markdown = f'{head}\n\n<p hidden>{words}</p>\n{rest}'

    def lead(match):
        text, target, anchor = match.group(1), match.group(2), match.group(3) or ""
        if ":" in target:
            return match.group(0)
        path = os.path.normpath(os.path.join(here, target))
        if files.get_file_from_path(path):
            if re.fullmatch(r"[\w./-]+\.md", text) and path.endswith(".md"):
                return f"[{title_of(path)}]({target}{anchor})"
            return match.group(0)
        if files.get_file_from_path(os.path.join(path, "README.md")):
            return f"[{text}]({os.path.join(target, 'README.md')}{anchor})"
        if os.path.exists(os.path.join(ROOT, path)):
            return text
        return match.group(0)

    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)", lead, markdown)
