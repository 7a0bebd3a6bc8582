//! The report of a run: a JSON file, a table to read, and the ratio to a former run.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

/// The lines of the table: what it is, where it stands in the JSON, and the digits after the point.
const LINES: [(&str, &str, usize); 17] = [
    ("accepted/s", "/throughput/accepted_per_s", 0),
    ("delivered/s", "/throughput/delivered_per_s", 0),
    ("refused publishes", "/throughput/refused", 0),
    ("server CPU, µs an event", "/throughput/server_cpu_us_per_event", 1),
    ("generator CPU, µs an event", "/throughput/generator_cpu_us_per_event", 1),
    ("receiver CPU, µs an event", "/throughput/receiver_cpu_us_per_event", 1),
    ("server writes, bytes an event", "/throughput/server_bytes_per_event", 0),
    ("POST under full load p50, ms", "/throughput/post_ms/p50", 2),
    ("POST under full load p99, ms", "/throughput/post_ms/p99", 2),
    ("POST p50, ms", "/latency/post_ms/p50", 2),
    ("POST p99, ms", "/latency/post_ms/p99", 2),
    ("POST max, ms", "/latency/post_ms/max", 2),
    ("arrival p50, ms", "/latency/arrival_ms/p50", 2),
    ("arrival p99, ms", "/latency/arrival_ms/p99", 2),
    ("arrival max, ms", "/latency/arrival_ms/max", 2),
    ("memory idle, KiB", "/memory_kib/idle", 0),
    ("memory peak under load, KiB", "/memory_kib/peak", 0),
];

/// The table of a run, with the ratio to a former run beside each number.
pub fn table(run: &Value, former: Option<&Value>) -> String {
    let machine = &run["machine"];
    let mut text = format!(
        "{} cores, {}, Linux {}; a sync of 4 KiB takes {:.2} ms (p99 {:.2} ms)\n\n",
        machine["cores"],
        machine["processor"].as_str().unwrap_or_default(),
        machine["kernel"].as_str().unwrap_or_default(),
        number(machine, "/sync_ms/p50").unwrap_or_default(),
        number(machine, "/sync_ms/p99").unwrap_or_default(),
    );
    text.push_str(&format!("{:<32} {:>12} {:>12} {:>7}\n", "", "now", "before", "ratio"));
    for (title, pointer, digits) in LINES {
        let now = number(run, pointer);
        let before = former.and_then(|former| number(former, pointer));
        let cell = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let ratio = now.zip(before).filter(|(_, before)| *before > 0.0).map(|(a, b)| a / b);
        text.push_str(&format!(
            "{title:<32} {:>12} {:>12} {:>7}\n",
            cell(now, digits),
            cell(before, digits),
            cell(ratio, 2),
        ));
    }
    let void = run["void"].as_array().map_or(&[][..], Vec::as_slice);
    for reason in void {
        text.push_str(&format!("VOID: {}\n", reason.as_str().unwrap_or_default()));
    }
    text
}

fn number(value: &Value, pointer: &str) -> Option<f64> {
    value.pointer(pointer)?.as_f64()
}

/// Writes the report into the folder. Its path.
///
/// # Errors
/// It cannot be written.
pub fn write(folder: &Path, run: &Value) -> Result<PathBuf> {
    let path = folder.join(format!("send-{}.json", run["unix_s"]));
    std::fs::write(&path, format!("{run:#}\n"))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The run to compare with: the named one, or the last one in the folder that is not void.
///
/// # Errors
/// The named one cannot be read.
pub fn former(folder: &Path, named: Option<&Path>) -> Result<Option<Value>> {
    if let Some(path) = named {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        return Ok(Some(serde_json::from_str(&text)?));
    }
    let mut runs: Vec<Value> = std::fs::read_dir(folder)?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("send-"))
        .filter_map(|entry| serde_json::from_str(&std::fs::read_to_string(entry.path()).ok()?).ok())
        .filter(|run: &Value| run["void"].as_array().is_some_and(Vec::is_empty))
        .collect();
    runs.sort_by_key(|run| run["unix_s"].as_u64());
    Ok(runs.pop())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_ratios_and_void_reasons_are_shown() {
        let run = json!({"throughput": {"accepted_per_s": 12000.4}, "void": ["nothing arrived"]});
        let former = json!({"throughput": {"accepted_per_s": 6000.2}});
        let table = table(&run, Some(&former));
        let line = table.lines().find(|line| line.starts_with("accepted/s")).unwrap();
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells, ["accepted/s", "12000", "6000", "2.00"]);
        assert!(table.ends_with("VOID: nothing arrived\n"), "{table}");
    }

    #[test]
    fn the_last_run_that_holds_is_compared_with() {
        let folder = crate::workspace::empty_scratch("unit-report").unwrap();
        assert!(former(&folder, None).unwrap().is_none());
        for (unix_s, void) in [(1, json!([])), (2, json!([])), (3, json!(["broken"]))] {
            write(&folder, &json!({"unix_s": unix_s, "void": void})).unwrap();
        }
        assert_eq!(former(&folder, None).unwrap().unwrap()["unix_s"], 2);
        let named = former(&folder, Some(&folder.join("send-3.json"))).unwrap();
        assert_eq!(named.unwrap()["unix_s"], 3);
        assert!(former(&folder, Some(&folder.join("send-9.json"))).is_err());
    }
}
