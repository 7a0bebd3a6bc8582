//! What Everhook is handed out as: the package, the image, the unit, the manifests. All of it is
//! tried as far as that goes on one machine without a container runtime or a cluster.
//!
//! The image's last stage is played: a root directory gets what the stage copies, and the program
//! is started in it as the stage says, by that user, with nothing else there.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::install;
use crate::job::{Job, Service};
use crate::package::{self, Package};
use crate::postgres::free_port;
use crate::test::{Outcome, Run};
use crate::workspace;

const CONTAINERFILE: &str = "packaging/Containerfile";
const UNIT: &str = "packaging/everhook.service";
const MANIFESTS: &str = "packaging/kubernetes.yaml";
/// The version of Kubernetes whose schemas the manifests are held against.
const KUBERNETES: &str = "1.34";
/// What `systemd-analyze security` may find at most, of 100.
const EXPOSURE_MAX: u32 = 20;
const LIMIT: Duration = Duration::from_secs(30);
const TOKEN: &str = "a-token-for-the-image-on-loopback-only-0123456789";

/// Tries each; each is one test.
///
/// # Errors
/// Nothing: what cannot be had is a failure of its test.
pub fn part(run: &mut Run) -> Result<Outcome> {
    let log = &run.log;
    let mut outcome = Outcome::default();
    let package = package::build(log);
    let tests: [(&str, Result<()>); 4] = [
        ("the package", package.as_ref().map_or_else(|error| bail!("{error:#}"), is_whole)),
        ("the image", package.as_ref().map_or(Ok(()), |package| play_image(package, log))),
        ("the unit", package.as_ref().map_or(Ok(()), |package| verify_unit(package, log))),
        ("the manifests", validate_manifests(log)),
    ];
    for (what, tried) in tests {
        outcome = outcome.and(match tried {
            Ok(()) => Outcome::passed(1),
            Err(error) => Outcome::default().with_trouble(format!("{what}: {error:#}")),
        });
    }
    Ok(outcome)
}

fn is_whole(package: &Package) -> Result<()> {
    for file in ["everhook", "LICENSE-MIT", "man/everhook-serve.1", "completions/_everhook"] {
        ensure!(package.folder.join(file).is_file(), "{file} is not in it");
    }
    ensure!(package.archive.is_file(), "there is no archive");
    Ok(())
}

/// What the last stage of the container file says.
#[derive(Debug)]
struct Stage {
    user: (u32, u32),
    /// Entry point and arguments.
    command: Vec<String>,
    health: Vec<String>,
    /// Where data goes.
    volume: String,
}

impl Stage {
    fn read(text: &str) -> Result<Self> {
        let joined = text.replace("\\\n", " ");
        let lines = joined.lines().map(str::trim);
        let lines: Vec<_> =
            lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        let last = lines.iter().rposition(|line| line.starts_with("FROM "));
        let (build, last) = lines.split_at(last.context("no stage begins with FROM")?);
        ensure!(last[0] == "FROM scratch", "the last stage has more in it: {}", last[0]);
        let recipe = "RUN cargo xtask package";
        ensure!(build.contains(&recipe), "the program is not built with `{recipe}`");
        let said: BTreeMap<&str, &str> =
            last.iter().filter_map(|line| line.split_once(' ')).collect();
        let get = |name: &str| said.get(name).with_context(|| format!("it has no {name}"));
        let list = |text: &str| -> Result<Vec<String>> {
            serde_json::from_str(text).with_context(|| format!("{text} is no list of words"))
        };
        let user = get("USER")?;
        // By number: the image knows no names, and an orchestrator can tell that it is not root.
        let (id, group) = user.split_once(':').context("USER has no group")?;
        let (id, group): (u32, u32) = (id.parse()?, group.parse()?);
        ensure!(id != 0 && group != 0, "it runs as root");
        let copy = get("COPY")?;
        ensure!(copy.contains(&format!("--chown={user} ")), "what it copies is another's");
        let (options, health) = get("HEALTHCHECK")?.split_once("CMD ").context("no CMD")?;
        ensure!(options.contains("--timeout="), "the health check has no time limit");
        Ok(Self {
            user: (id, group),
            command: [list(get("ENTRYPOINT")?)?, list(get("CMD")?)?].concat(),
            health: list(health)?,
            volume: (*get("VOLUME")?).to_owned(),
        })
    }
}

fn play_image(package: &Package, log: &Path) -> Result<()> {
    let text = std::fs::read_to_string(workspace::root().join(CONTAINERFILE))?;
    let stage = Stage::read(&text)?;
    let root = workspace::empty_scratch("image")?;
    let data = root.join(stage.volume.trim_start_matches('/'));
    std::fs::DirBuilder::new().mode(0o700).create(&data)?;
    std::fs::copy(package.program(), root.join("everhook"))?;
    chown(&data, Some(stage.user.0), Some(stage.user.1))
        .context("only root can play the image; run as root")?;

    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let inside = |words: &[String]| {
        let user = format!("--userspec={}:{}", stage.user.0, stage.user.1);
        // The port is the one thing that is ours: the stage's may be taken here.
        let words = words.iter().map(|word| match word.strip_suffix(":8080") {
            Some(host) => format!("{host}:{}", address.port()),
            None => word.clone(),
        });
        Job::new("chroot").args([user.as_str()]).args([&root]).args(words)
    };
    let at = ["--server".to_owned(), format!("http://{address}")];
    let healthy = || -> Result<bool> {
        let job = inside(&[stage.health.as_slice(), &at].concat());
        Ok(job.limit(LIMIT).run(log)?.success)
    };
    ensure!(!healthy()?, "it is healthy before it runs");
    let mut server: Service =
        inside(&stage.command).env("EVERHOOK_ADMIN_TOKEN", TOKEN).start(log)?;
    server.wait_until(LIMIT, |_| healthy().ok()?.then_some(()))?;
    let event = ["/everhook", "send", "order.created", "--token", TOKEN].map(str::to_owned);
    let said = inside(&[event.as_slice(), &at].concat()).demand(log)?;
    ensure!(said.contains("accepted"), "it accepts nothing: {said}");
    server.stop()?;
    ensure!(data.join("everhook.db").is_file(), "the data is not in {}", stage.volume);
    Ok(())
}

fn verify_unit(package: &Package, log: &Path) -> Result<()> {
    install::need("systemd-analyze", &["systemd"], log)?;
    let text = std::fs::read_to_string(workspace::root().join(UNIT))?;
    let program = "/usr/local/bin/everhook";
    ensure!(text.contains(&format!("ExecStart={program} serve ")), "it starts something else");
    // It is looked for where the unit says; here it is elsewhere.
    let folder = workspace::empty_scratch("unit")?;
    let unit = folder.join("everhook.service");
    std::fs::write(&unit, text.replace(program, &package.program().to_string_lossy()))?;
    let said = Job::new("systemd-analyze").args(["verify"]).args([&unit]).demand(log)?;
    // What it only warns of is a mistake too; of other units it says other things.
    let ours: Vec<_> = said.lines().filter(|line| line.contains("everhook.service")).collect();
    ensure!(ours.is_empty(), "{}", ours.join("\n"));
    Job::new("systemd-analyze")
        .args(["security", "--offline=yes", &format!("--threshold={EXPOSURE_MAX}")])
        .args([&unit])
        .demand(log)?;
    Ok(())
}

fn validate_manifests(log: &Path) -> Result<()> {
    let requirements = workspace::root().join("packaging/requirements.txt");
    let python = install::python("kubernetes", &requirements, log)?;
    let manifests = workspace::root().join(MANIFESTS);
    // By the interpreter, and not by the path that the script was installed under.
    Job::new(python.join("bin/python"))
        .args([python.join("bin/kubernetes-validate")])
        .args(["--strict", "--version", KUBERNETES])
        .args([&manifests])
        .demand(log)?;
    // It is started as the image starts it, by the same user.
    let text = std::fs::read_to_string(manifests)?;
    let stage = std::fs::read_to_string(workspace::root().join(CONTAINERFILE))?;
    let stage = Stage::read(&stage)?;
    let args: Vec<String> = stage.command[1..]
        .iter()
        .map(|word| if word.contains(':') { format!("\"{word}\"") } else { word.clone() })
        .collect();
    for expected in [
        format!("args: [{}]", args.join(", ")),
        format!("runAsUser: {}", stage.user.0),
        format!("mountPath: {}", stage.volume),
    ] {
        ensure!(text.contains(&expected), "they do not say `{expected}`, as the image does");
    }
    Ok(())
}
