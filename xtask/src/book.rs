//! The book in `docs/`: it is whole, its links lead somewhere, and its commands do what they say.
//!
//! What is fenced as `sh` is run, page by page, in one shell from an empty folder, and must work.
//! Other fences show what cannot run here: an answer, a placeholder, somebody else's machine.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::install;
use crate::job::Job;
use crate::postgres::free_port;
use crate::server::release_program;
use crate::test::{Outcome, Run};
use crate::workspace;

const MDBOOK: &str = "0.5.4";
/// Pages whose commands are run.
const RUN: [&str; 1] = ["docs/start.md"];
/// Ports that they name, which may be taken here.
const PORTS: [&str; 2] = ["8080", "9000"];
/// Pages outside the book whose links are followed too.
const OTHER_PAGES: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];
const LIMIT: Duration = Duration::from_secs(120);

/// Tries each; each is one test.
///
/// # Errors
/// The program under test could not be had.
pub fn part(run: &mut Run) -> Result<Outcome> {
    let log = &run.log;
    Job::cargo(&["build", "--release", "--locked", "-p", "everhook"]).demand(log)?;
    let mut outcome = Outcome::default();
    for (what, tried) in [("the book", build(log)), ("links", follow_links())] {
        outcome = outcome.and(verdict(what, tried));
    }
    for page in RUN {
        outcome = outcome.and(verdict(page, run_page(page, log)));
    }
    Ok(outcome)
}

fn verdict(what: &str, tried: Result<()>) -> Outcome {
    match tried {
        Ok(()) => Outcome::passed(1),
        Err(error) => Outcome::default().with_trouble(format!("{what}: {error:#}")),
    }
}

/// The pages of the book, by their file names.
fn pages() -> Result<BTreeSet<String>> {
    let mut pages = BTreeSet::new();
    for entry in std::fs::read_dir(workspace::root().join("docs"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") && name != "SUMMARY.md" {
            pages.insert(name);
        }
    }
    Ok(pages)
}

fn build(log: &Path) -> Result<()> {
    let folder = workspace::scratch("mdbook")?;
    let mdbook = folder.join("bin/mdbook");
    // A version that is there already is left as it is.
    let install = ["install", "mdbook", "--locked", "--no-default-features", "--version", MDBOOK];
    Job::cargo(&install).args(["--root"]).args([&folder]).demand(log)?;
    let built = workspace::empty_scratch("book")?;
    Job::new(mdbook).args(["build", "--dest-dir"]).args([&built]).demand(log)?;
    for page in pages()? {
        let html = built.join(&page).with_extension("html");
        ensure!(html.is_file(), "{page} is not in docs/SUMMARY.md, so nobody finds it");
    }
    Ok(())
}

/// Demands that every link to a file of ours leads to one, and to a heading that it has.
fn follow_links() -> Result<()> {
    let root = workspace::root();
    let pages = pages()?.into_iter().chain(["SUMMARY.md".to_owned()]);
    let pages = pages.map(|page| root.join("docs").join(page));
    let mut broken = Vec::new();
    for page in pages.chain(OTHER_PAGES.map(|page| root.join(page))) {
        let text = std::fs::read_to_string(&page)?;
        for link in links(&text) {
            if !leads_somewhere(&page, link)? {
                let page = page.strip_prefix(root).unwrap_or(&page);
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    ensure!(broken.is_empty(), "these lead nowhere:\n{}", broken.join("\n"));
    Ok(())
}

/// What stands in the parentheses of `[…](…)`, outside of fences.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    let open = text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    });
    let links = open.flat_map(|line| line.split("](").skip(1));
    links.filter_map(|rest| rest.split([')', ' ']).next())
}

fn leads_somewhere(page: &Path, link: &str) -> Result<bool> {
    if link.contains("://") || link.starts_with("mailto:") {
        // Somebody else's: nothing but this machine is asked in a test.
        return Ok(true);
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target: PathBuf = match path {
        "" => page.to_owned(),
        path => page.parent().context("a page without a folder")?.join(path),
    };
    if anchor.is_empty() || !target.exists() {
        return Ok(target.exists());
    }
    let text = std::fs::read_to_string(&target)?;
    Ok(headings(&text).any(|heading| anchor_of(heading) == anchor))
}

fn headings(text: &str) -> impl Iterator<Item = &str> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| line.trim_start_matches('#').trim())
}

/// The anchor that a heading is given: lower case, spaces as hyphens, other marks left out.
fn anchor_of(heading: &str) -> String {
    let kept = heading.chars().filter_map(|letter| match letter {
        ' ' | '-' => Some('-'),
        '_' => Some('_'),
        letter => letter.is_alphanumeric().then(|| letter.to_lowercase().next()).flatten(),
    });
    kept.collect()
}

/// Runs the commands of a page.
fn run_page(page: &str, log: &Path) -> Result<()> {
    install::need("python3", &["python3"], log)?;
    for program in ["curl", "openssl"] {
        install::need(program, &[program], log)?;
    }
    let text = std::fs::read_to_string(workspace::root().join(page))?;
    let blocks: Vec<&str> = blocks(&text).collect();
    ensure!(!blocks.is_empty(), "it has nothing to run");
    // Job control gives what runs beside its number; the first failure ends it, and what was
    // started ends with it.
    let mut script = "set -eumo pipefail\ntrap 'kill $(jobs -p)' EXIT\n".to_owned();
    script.push_str(&blocks.join("\n"));
    for port in PORTS {
        script = script.replace(port, &free_port()?.to_string());
    }
    // The page names no server: what listens elsewhere is told by settings, as a reader could.
    let program = release_program();
    let path = std::env::var("PATH").unwrap_or_default();
    let programs = program.parent().context("a program without a folder")?.display();
    let folder = workspace::empty_scratch("book-commands")?;
    let port = script.split("http://127.0.0.1:").nth(1).and_then(|rest| rest.split('/').next());
    let port = port.context("the page calls no server")?.to_owned();
    Job::new("bash")
        .args(["-c", &script])
        .env("PATH", format!("{programs}:{path}"))
        .env("EXAMPLES", workspace::root().join("examples"))
        .env("EVERHOOK_SERVER", format!("http://127.0.0.1:{port}"))
        .env("EVERHOOK_SERVER_LISTEN", format!("127.0.0.1:{port}"))
        .dir(&folder)
        .limit(LIMIT)
        .demand(log)?;
    Ok(())
}

/// What is fenced as `sh`, block by block.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_anchors_are_read_as_they_are_shown() {
        let page = "# A `b`-c, d!\n[x](a.md#b) and [y](#a-b-c-d)\n```\n[no](link)\n```\n[z](u://v)";
        assert_eq!(links(page).collect::<Vec<_>>(), ["a.md#b", "#a-b-c-d", "u://v"]);
        let anchors: Vec<_> = headings(page).map(anchor_of).collect();
        assert_eq!(anchors, ["a-b-c-d"]);
        assert_eq!(blocks("```sh\na\n```\n```\nb\n```\n```sh\nc\n```").count(), 2);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let page = workspace::root().join("docs/start.md");
        for (link, leads) in [
            ("sending.md", true),
            ("nothing.md", false),
            ("../README.md#set-up", true),
            ("sending.md#no-such-heading", false),
            ("#run-it", true),
            ("https://example.com/nothing", true),
        ] {
            assert_eq!(leads_somewhere(&page, link).expect("readable"), leads, "{link}");
        }
    }
}
