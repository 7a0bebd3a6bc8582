//! What the kernel says: about a process, about the machine, about its disk.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::summary::Summary;

/// The kernel counts CPU in these; it has been 100 a second on Linux for decades.
const TICK_US: u64 = 10_000;
/// How often the disk is asked how long a sync takes.
const SYNCS: usize = 100;

/// The CPU that a process has used, user and system, in microseconds.
///
/// # Errors
/// There is no such process.
pub fn cpu_us(pid: u32) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold spaces; the fields are counted after it.
    let (_, fields) = stat.rsplit_once(") ").context("/proc/<pid>/stat has another form")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks = |index: usize| -> Result<u64> {
        Ok(fields.get(index).context("/proc/<pid>/stat is too short")?.parse()?)
    };
    Ok((ticks(11)? + ticks(12)?) * TICK_US)
}

/// A field of `/proc/<pid>/status` in KiB, such as `VmRSS`, or of `/proc/<pid>/io` in bytes.
///
/// # Errors
/// There is no such process or field.
pub fn field(pid: u32, file: &str, name: &str) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}"))?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .with_context(|| format!("/proc/<pid>/{file} has no {name}"))?;
    Ok(value.trim().trim_end_matches(" kB").parse()?)
}

/// What a number must be read against: cores, kernel, processor, and how long a sync takes.
/// No names.
///
/// # Errors
/// The folder cannot be written.
pub fn describe(folder: &Path) -> Result<Value> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processor = read("/proc/cpuinfo")
        .lines()
        .find_map(|line| {
            line.strip_prefix("model name")
                .map(|rest| rest.trim_start_matches([':', '\t', ' ']).to_owned())
        })
        .unwrap_or_else(|| "unknown".to_owned());
    Ok(json!({
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "processor": processor,
        "memory_gib": memory_gib(&read("/proc/meminfo")),
        "sync_ms": sync(folder)?.json(),
    }))
}

fn memory_gib(meminfo: &str) -> u64 {
    let kib = meminfo.lines().next().and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / (1024 * 1024)
}

/// How long it takes to append 4 KiB to a file and sync it, in this folder.
fn sync(folder: &Path) -> Result<Summary> {
    let path = folder.join("sync");
    let mut file = File::create(&path)?;
    let mut durations = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        let began = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        durations.push(u64::try_from(began.elapsed().as_micros())?);
    }
    std::fs::remove_file(path)?;
    Ok(Summary::of(durations))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_process_can_be_read() {
        let own = std::process::id();
        cpu_us(own).unwrap();
        assert!(field(own, "status", "VmRSS").unwrap() > 100);
        assert!(field(own, "status", "VmNothing").is_err());
        assert!(cpu_us(0).is_err());
    }
}
