//! Other programs: their output goes to a file, they have a time limit, and they end with us.
//!
//! Both wrappers come with Linux: `setpriv --pdeathsig` makes the kernel end a program when this
//! one dies, however it dies, and `timeout` ends its whole process group at the limit.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long a program may take that names no limit of its own.
const LIMIT: Duration = Duration::from_secs(30 * 60);
/// How long a service may take to end after it was asked to, before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// Variables that begin with it set the product up.
const SETTINGS_PREFIX: &str = "EVERHOOK_";
/// The exit code with which `timeout` says that the limit was reached.
const TIMED_OUT: i32 = 124;

/// A program that is about to run.
#[derive(Debug)]
pub struct Job {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    dir: PathBuf,
    limit: Duration,
    user: Option<(u32, u32)>,
}

/// What a program did that ran to its end.
#[derive(Debug)]
pub struct Finished {
    /// Whether it ended with exit code 0 within its limit.
    pub success: bool,
    /// All it wrote to both of its outputs.
    pub output: String,
    /// How it ended, in words.
    pub ending: String,
}

impl Job {
    /// A program that runs in the root of the checkout, with no standard input.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            dir: crate::workspace::root().to_owned(),
            limit: LIMIT,
            user: None,
        }
    }

    /// Our cargo with these arguments.
    pub fn cargo(args: &[&str]) -> Self {
        Self::new(crate::workspace::cargo()).args(args)
    }

    /// More arguments.
    #[must_use]
    pub fn args<T: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// One more environment variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Another folder to run in.
    #[must_use]
    pub fn dir(mut self, dir: &Path) -> Self {
        dir.clone_into(&mut self.dir);
        self
    }

    /// Another time limit; a service has none.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Another user and group to run as; only root can do that.
    #[must_use]
    pub fn user(mut self, user: Option<(u32, u32)>) -> Self {
        self.user = user;
        self
    }

    /// Runs it to its end, with its output added to `log`.
    ///
    /// # Errors
    /// It could not be started, or the log not written. A program that ran and failed is no error.
    pub fn run(self, log: &Path) -> Result<Finished> {
        let (mut out, begin) = self.open(log)?;
        let limit = self.limit.as_secs();
        let started = Instant::now();
        let mut command = self.command(Some(limit));
        let status = command
            .stdout(out.try_clone()?)
            .stderr(out.try_clone()?)
            .status()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        let ending = match status.code() {
            Some(TIMED_OUT) => format!("ended at its limit of {limit} s"),
            Some(code) => {
                format!("exit code {code} after {:.1} s", started.elapsed().as_secs_f64())
            }
            None => format!("{status}"),
        };
        writeln!(out, "[{ending}]")?;
        let mut output = Vec::new();
        let mut written = File::open(log)?;
        written.seek(SeekFrom::Start(begin))?;
        written.read_to_end(&mut output)?;
        Ok(Finished {
            success: status.success(),
            output: String::from_utf8_lossy(&output).into_owned(),
            ending,
        })
    }

    /// Runs it to its end and demands success.
    ///
    /// # Errors
    /// It could not be started, or it failed; the end of its output is in the message.
    pub fn demand(self, log: &Path) -> Result<String> {
        let line = self.line();
        let finished = self.run(log)?;
        if finished.success {
            return Ok(finished.output);
        }
        let end = tail(&finished.output, 30);
        bail!("`{line}` failed ({}), whole output in {}:\n{end}", finished.ending, log.display());
    }

    /// Starts it as a service that runs until it is stopped or dropped.
    ///
    /// # Errors
    /// It could not be started, or the log not written.
    pub fn start(self, log: &Path) -> Result<Service> {
        let (out, begin) = self.open(log)?;
        let child = self
            .command(None)
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        Ok(Service { child, log: log.to_owned(), begin, line: self.line() })
    }

    fn command(&self, limit_s: Option<u64>) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM"]);
        if let Some((user, group)) = self.user {
            command.arg(format!("--reuid={user}")).arg(format!("--regid={group}"));
            command.arg("--clear-groups");
        }
        command.arg("--");
        if let Some(limit) = limit_s {
            command.args(["timeout", "--kill-after=10"]).arg(limit.to_string());
        }
        command.arg(&self.program).args(&self.args).current_dir(&self.dir).stdin(Stdio::null());
        // Settings of whoever started us are not settings of what we measure and test.
        for (name, _) in std::env::vars_os()
            .filter(|(name, _)| name.as_encoded_bytes().starts_with(SETTINGS_PREFIX.as_bytes()))
        {
            command.env_remove(name);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Opens the log at its end and writes the command line into it.
    fn open(&self, log: &Path) -> Result<(File, u64)> {
        let mut out = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot write the log {}", log.display()))?;
        writeln!(out, "$ {}", self.line())?;
        let begin = out.metadata()?.len();
        Ok((out, begin))
    }

    /// The command line as a person would type it; without the environment, which may hold secrets.
    pub fn line(&self) -> String {
        let mut line = self.program.to_string_lossy().into_owned();
        for arg in &self.args {
            line.push(' ');
            line.push_str(&arg.to_string_lossy());
        }
        line
    }
}

/// A program that runs beside us. Dropping it stops it.
#[derive(Debug)]
pub struct Service {
    child: Child,
    log: PathBuf,
    begin: u64,
    line: String,
}

impl Service {
    /// Its process id; the wrapper has become the program, so this is the program itself.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written so far.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn output(&self) -> Result<String> {
        let mut written = File::open(&self.log)?;
        written.seek(SeekFrom::Start(self.begin))?;
        let mut output = Vec::new();
        written.read_to_end(&mut output)?;
        Ok(String::from_utf8_lossy(&output).into_owned())
    }

    /// Asks `ready` every 50 ms until it says something, the limit is over or the service has died.
    ///
    /// # Errors
    /// The service ended first, or was not ready within `limit`; its last words are in the message.
    pub fn wait_until<T>(
        &mut self,
        limit: Duration,
        mut ready: impl FnMut(&Self) -> Option<T>,
    ) -> Result<T> {
        let began = Instant::now();
        loop {
            if let Some(value) = ready(self) {
                return Ok(value);
            }
            let ended = self.child.try_wait()?;
            if let Some(status) = ended {
                bail!("`{}` ended at once ({status}):\n{}", self.line, tail(&self.output()?, 30));
            }
            if began.elapsed() > limit {
                let words = tail(&self.output()?, 30);
                bail!("`{}` was not ready after {} s:\n{words}", self.line, limit.as_secs());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends it where it stands, as a crash would.
    ///
    /// # Errors
    /// The process could not be killed or waited for.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks it to end, waits, and kills it if it does not.
    ///
    /// # Errors
    /// The process could not be waited for.
    pub fn stop(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        let pid = self.pid().to_string();
        // The shell's own `kill`: a small system has no program of that name.
        let ask = ["-c", "kill -TERM \"$0\"", &pid];
        let asked = Command::new("sh").args(ask).status()?.success();
        let began = Instant::now();
        while asked && began.elapsed() < STOP_LIMIT {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("xtask: `{}` could not be stopped: {error}", self.line);
        }
    }
}

/// The last `count` lines of a text.
pub fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(name: &str) -> PathBuf {
        let path = crate::workspace::scratch("unit").unwrap().join(name);
        if path.exists() {
            std::fs::remove_file(&path).unwrap();
        }
        path
    }

    #[test]
    fn output_and_ending_are_kept() {
        let log = log("job-output.log");
        let job = || Job::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]);
        let finished = job().run(&log).unwrap();
        assert!(!finished.success);
        assert!(finished.output.starts_with("out\nerr\n"), "{}", finished.output);
        assert!(finished.ending.starts_with("exit code 3"), "{}", finished.ending);
        let refused = job().demand(&log).unwrap_err().to_string();
        assert!(refused.contains("err"), "{refused}");
    }

    #[test]
    fn a_program_ends_at_its_limit_with_its_children() {
        let log = log("job-limit.log");
        let job = Job::new("sh").args(["-c", "sleep 60 & echo $!; wait"]);
        let finished = job.limit(Duration::from_secs(1)).run(&log).unwrap();
        assert!(!finished.success);
        assert!(finished.ending.contains("limit"), "{}", finished.ending);
        let child = finished.output.lines().next().unwrap();
        let gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        };
        // It was told to end before its parent's end was seen; the kernel may still be at it.
        let began = Instant::now();
        while !gone() {
            assert!(began.elapsed() < Duration::from_secs(30), "{child} lives on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_service_that_dies_is_noticed_and_one_that_lives_is_stopped() {
        let log = log("job-service.log");
        let mut dead = Job::new("sh").args(["-c", "echo no"]).start(&log).unwrap();
        let wait = Duration::from_secs(10);
        let error = dead.wait_until(wait, |_| None::<()>).unwrap_err().to_string();
        assert!(error.contains("no"), "{error}");
        let mut live = Job::new("sh").args(["-c", "echo up; exec sleep 60"]).start(&log).unwrap();
        live.wait_until(wait, |service| service.output().ok()?.contains("up").then_some(()))
            .unwrap();
        live.stop().unwrap();
    }
}
