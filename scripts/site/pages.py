"""Hooks of mkdocs: what of the repository is on the site, where links lead, and the navigation.

The site has the repository's layout, so that the links of pages hold. A link to what is not on it,
such as Go code, stays as text.
"""

import os
import re
import shutil
import subprocess

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))

# The pages of docs/, in the order of the navigation. One that is not there is left out, and one that
# is not named comes after these.
ORDER = """getting-started concepts configuration envoy who-is-limited counters commands simulate library
coming-from faq / guarantees leases how-it-works / backend operations monitoring security / architecture
glossary""".split("/")
SECTIONS = ["Use", "Promises", "Operations", "Inside"]


def on_config(config):
    pages = config["docs_dir"]
    shutil.rmtree(pages, ignore_errors=True)
    files = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "*.md", "*.svg", "*.png", "envoy/*.yaml", "monitoring/*"],
        check=True, capture_output=True, text=True,
    ).stdout.split()
    for name in files:
        if "testdata" in name or not os.path.exists(os.path.join(ROOT, name)):
            continue
        target = os.path.join(pages, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(os.path.join(ROOT, name), target)
    shutil.copy(os.path.join(ROOT, "dist/docs-env/package/dist/mermaid.min.js"), pages)
    there = {name[5:-3] for name in files if re.fullmatch(r"docs/[^/]+\.md", name)}
    config["nav"] = ["README.md"]
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


def on_page_markdown(markdown, page, config, files):
    here = os.path.dirname(page.file.src_uri)

    def lead(match):
        text, target, anchor = match.group(1), match.group(2), match.group(3) or ""
        if ":" in target:
            return match.group(0)
        path = os.path.normpath(os.path.join(here, target))
        if files.get_file_from_path(path):
            return match.group(0)
        if files.get_file_from_path(os.path.join(path, "README.md")):
            return f"[{text}]({os.path.join(target, 'README.md')}{anchor})"
        if os.path.exists(os.path.join(ROOT, path)):
            return text
        return match.group(0)

    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)", lead, markdown)
