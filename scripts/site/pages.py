"""Hooks of mkdocs: they choose the files of the site, mend links, and make the navigation.

The site has the repository's layout, so that links between pages work. A link to a file that is not
on the site, such as Go code, becomes plain text.
"""

import glob
import os
import re
import shutil
import subprocess
import textwrap

from mkdocs.exceptions import PluginError

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))

# The doors of the site, and the pages of docs/ behind each. Missing pages are left out, and pages without
# a place here come last.
DOORS = {
    "Start": ("getting-started kubernetes faq", "A limit before your own service, in ten minutes."),
    "Recipes": (
        "cookbook tokens rate-limit-service library convert",
        "Logins, plans, tenants, tokens: the rule, and what it answers.",
    ),
    "Reference": ("configuration fields response-headers commands", "Every field, header and command."),
    "Run it": (
        "backend stores monitoring security counters",
        "Production: Envoy, the backend and its store, alerts, one user's counter.",
    ),
    "How it counts": ("how-it-counts", "What is promised, what is not, and when a request waits."),
}
# The picture of an algorithm: the playground has a lane of the same name.
LANE = re.compile(r"!\[[^\]]*\]\(\.\./playground/site/pictures/([a-z-]+)\.svg\)")
USERS = {"README.md", *(f"docs/{name}.md" for names, _ in DOORS.values() for name in names.split())}
CONTRIBUTORS = "architecture glossary adding-a-selector adding-a-store adding-an-algorithm"


def on_config(config):
    pages = config["docs_dir"]
    shutil.rmtree(pages, ignore_errors=True)
    files = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "*.md", "*.svg", "*.png", "envoy/*.yaml", "examples/*", "charts/weir/files/*"],
        check=True, capture_output=True, text=True,
    ).stdout.split()
    for name in files:
        if "testdata" in name or not os.path.exists(os.path.join(ROOT, name)):
            continue
        target = os.path.join(pages, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(os.path.join(ROOT, name), target)
    shutil.copy(os.path.join(ROOT, "dist/docs-env/package/dist/mermaid.min.js"), pages)
    shutil.copy(os.path.join(ROOT, "dist/docs-env/package/shim/index.js"), os.path.join(pages, "iframe-worker.js"))
    shutil.copy(os.path.join(ROOT, "scripts/site/site.css"), pages)
    for name in ["icon.svg", "tokens.css", "fonts/inter.woff2", "fonts/LICENSE.txt"]:
        os.makedirs(os.path.dirname(os.path.join(pages, name)), exist_ok=True)
        shutil.copy(os.path.join(ROOT, "playground/site", name), os.path.join(pages, name))
    # The playground, if it has been built.
    if os.path.exists(os.path.join(ROOT, "playground/site/engine.wasm")):
        shutil.copytree(os.path.join(ROOT, "playground/site"), os.path.join(pages, "playground"), dirs_exist_ok=True)
    there = {name[5:-3] for name in files if re.fullmatch(r"docs/[^/]+\.md", name)}
    config["nav"] = [{"Weir": "README.md"}]
    placed = set(CONTRIBUTORS.split())
    for title, (group, _) in DOORS.items():
        names = [name for name in group.split() if name in there]
        placed.update(names)
        config["nav"].append({title: [f"docs/{name}.md" for name in names]})
    names = [name for name in CONTRIBUTORS.split() if name in there] + sorted(there - placed)
    config["nav"].append({"Contributors": [
        "CONTRIBUTING.md", "CHANGELOG.md", "RATIONALE.md", *(f"docs/{name}.md" for name in names), "envoy/README.md",
        *sorted(n for n in files if n.startswith("bench/") and n.endswith(".md")),
    ]})
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


def as_console(markdown):
    """Samples with prompts are a console's, so that copying leaves prompts and output."""

    def fence(match):
        return f"```console\n{textwrap.dedent(match.group(0))}```\n"

    return re.sub(r"(?m)^    \$ (?:.*\n)(?:(?:    .*)?\n(?=    )|    .*\n)*", fence, markdown)


def in_tabs(markdown):
    """Each recipe of the cookbook is there for Envoy, Istio, Envoy Gateway and, if it has this, Go, too, in tabs."""

    def source(path):
        with open(os.path.join(ROOT, path), encoding="utf-8") as text:
            return text.read()

    envoy = re.search(r"(?ms)^  - name: weir\n.*?(?=^  - name: )", source("docs/backend.md")).group(0)
    istio, gateway = source("examples/istio.yaml"), source("examples/envoy-gateway.yaml").split("---\n")[0]

    def tabs(match):
        recipe, between, program = match.groups()

        def put(yaml, field, indent):
            """YAML with the recipe, of which JSON is a part, in the place of a field's value."""
            return re.sub(rf"(?ms)^( +{field}:).*", r"\1", yaml) + " |" * (field == "value") + "\n" + textwrap.indent(recipe, " " * indent)

        plugin = put(textwrap.dedent(envoy), "value", 10)
        if "request_json" in recipe:  # the others can't have the field that such rules need
            plugin = re.sub(r"(?m)^( +)configuration:\n", r"\1allow_on_headers_stop_iteration: true\n\g<0>", plugin)
            files = {"Envoy": plugin}
        else:
            there = put(istio, "pluginConfig", 4).replace('"weir_backend"', '"outbound|9180||weir.weir-system.svc.cluster.local"')
            files = {"Envoy": plugin, "Istio": there, "Envoy Gateway": put(gateway, "config", 8)}
        all = {"Configuration": f"```json\n{recipe}```\n", **{title: f"```yaml\n{file}```\n" for title, file in files.items()}}
        if program:
            all["Go"] = program
        return "\n".join(f'=== "{title}"\n\n{textwrap.indent(text, "    ")}' for title, text in all.items()) + (between or "")

    program = r"((?:(?!^## ).)*?)^<details[^>]*><summary>In Go</summary>\n(.*?)^</details>\n"
    return re.sub(rf"(?ms)^```json\n(\{{.*?)^```\n(?:{program})?", tabs, markdown)


def on_post_build(config):
    """Each page is there as Markdown, too, and llms.txt lists them."""
    lines = ["# Weir", "", "> One rate limit across all your Envoys: a plugin for Envoy, Istio and Envoy Gateway, and a Go library."]
    for section in config["nav"]:
        for title, pages in section.items():
            pages = [pages] if isinstance(pages, str) else pages
            lines += ["", f"## {title}", "", *(f"- [{title_of(page)}]({page})" for page in pages)]
            for page in pages:
                os.makedirs(os.path.join(config["site_dir"], os.path.dirname(page)), exist_ok=True)
                shutil.copyfile(os.path.join(config["docs_dir"], page), os.path.join(config["site_dir"], page))
    with open(os.path.join(config["site_dir"], "llms.txt"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    # lunr 2.3.9 takes nodes of words with digits for each other, and then a search for "3" fails.
    [worker] = glob.glob(os.path.join(config["site_dir"], "assets/javascripts/workers/search.*.js"))
    with open(worker, encoding="utf-8") as file:
        mended = file.read().replace("e=e+s+o.id", 'e=e+s+o.id+"."')
    if '+"."' not in mended:
        raise PluginError(f"{worker} no longer tells nodes of words apart by e=e+s+o.id")
    with open(worker, "w", encoding="utf-8") as file:
        file.write(mended)


def on_page_markdown(markdown, page, config, files):
    here = os.path.dirname(page.file.src_uri)
    markdown = as_console(markdown)
    if page.file.src_uri == "README.md":
        doors = "".join(
            f'<a href="docs/{group.split()[0]}.html"><b>{title}</b> {text}</a>\n' for title, (group, text) in DOORS.items()
        )
        doors += '<a href="docs/faq.html"><b>Questions</b> Why was I refused? Everybody gets 429. How does it compare?</a>\n'
        head, rest = markdown.split("\n\n", 1)
        promise, rest = rest.split("\n\n", 1)
        markdown = "\n\n".join([head, promise, f'<div class="doors">\n{doors}</div>', rest])
    if files.get_file_from_path("playground/index.html"):
        markdown = LANE.sub(r"""\g<0>

<details class="lane"><summary>Play it</summary><iframe loading="lazy" title="\1" src="../playground/index.html?embed=\1"></iframe></details>""", markdown)
    markdown = both_themes(markdown, here)
    if page.file.src_uri == "docs/cookbook.md":
        markdown = in_tabs(markdown)
    # Pages for users come first, and the questions before pages that only mention the word.
    page.meta["search"] = {"boost": {"faq": 9}.get(page.file.name, 3 if page.file.src_uri in USERS else 0.3)}
    if words := SYNONYMS.get(page.file.src_uri):
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
