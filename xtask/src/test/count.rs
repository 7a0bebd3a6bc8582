//! What a run of tests says about itself.

/// The result of a part, or of one program in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// What a reader has to know about the failures.
    pub trouble: Vec<String>,
}

impl Outcome {
    /// So many tests passed.
    pub fn passed(passed: u64) -> Self {
        Self { passed, ..Self::default() }
    }

    /// One more test that failed, with its reason.
    #[must_use]
    pub fn with_trouble(mut self, reason: String) -> Self {
        self.failed += 1;
        self.with_note(reason)
    }

    /// A reason for failures that are already counted.
    #[must_use]
    pub fn with_note(mut self, reason: String) -> Self {
        self.trouble.push(reason);
        self
    }

    /// Both together.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.passed += other.passed;
        self.failed += other.failed;
        self.trouble.extend(other.trouble);
        self
    }
}

/// Reads the counts of a `cargo test`: the sum of its `test result:` lines.
///
/// An ignored test is a failed one. A run without any test, one that did not compile, and one that
/// ended badly although no test says so (an abort, a time limit) count as one failure.
pub fn read(output: &str, success: bool) -> Outcome {
    let mut outcome = Outcome::default();
    let mut ignored = 0;
    for line in output.lines() {
        let Some((_, counts)) = line.split_once("test result: ") else { continue };
        outcome.passed += number_before(counts, " passed");
        outcome.failed += number_before(counts, " failed");
        ignored += number_before(counts, " ignored");
    }
    if ignored > 0 {
        outcome.failed += ignored;
        outcome.trouble.push(format!("{ignored} tests are ignored; none may be"));
    }
    if outcome.failed == 0 && !success {
        return outcome.with_trouble("it ended badly although no test says that it failed".into());
    }
    if outcome.failed == 0 && outcome.passed == 0 {
        return outcome.with_trouble("it ran no test at all".into());
    }
    outcome
}

/// The number that stands before a word, or 0.
fn number_before(counts: &str, word: &str) -> u64 {
    let before = counts.split_once(word).map_or("", |(before, _)| before);
    before.rsplit([' ', ';']).next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// An output without the lines in which cargo says what it is building.
pub fn without_progress(output: &str) -> String {
    let progress = ["Checking", "Compiling", "Downloaded", "Downloading", "Documenting"];
    let told = |line: &&str| {
        !line.starts_with(' ') || !progress.iter().any(|word| line.trim_start().starts_with(word))
    };
    output.lines().filter(told).collect::<Vec<_>>().join("\n")
}

/// The parts of a long output that tell why it failed: what each failed test printed, then the end.
pub fn story(output: &str, lines_max: usize) -> String {
    let mut told: Vec<&str> = Vec::new();
    let mut telling = false;
    for line in output.lines() {
        if line.starts_with("---- ") && line.contains(" stdout ----") {
            telling = true;
        } else if line == "failures:" || line.starts_with("test result:") {
            telling = false;
        }
        if telling || line.ends_with("... FAILED") {
            told.push(line);
        }
    }
    told.truncate(lines_max * 2);
    let mut story = told.join("\n");
    if !story.is_empty() {
        story.push_str("\n[...]\n");
    }
    story + &crate::job::tail(&without_progress(output), lines_max.div_ceil(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "\
test a ... ok
test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.00s
test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
";

    #[test]
    fn counts_are_summed() {
        let outcome = read(TWO, false);
        assert_eq!((outcome.passed, outcome.failed), (15, 2));
    }

    #[test]
    fn nothing_passes_in_silence() {
        let ignored = "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured;";
        assert_eq!((read(ignored, true).passed, read(ignored, true).failed), (5, 1));
        let none = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out;";
        assert_eq!(read(none, true).failed, 1);
        assert_eq!(read("error: no test target named `crash`", false).failed, 1);
        let aborted = "test result: ok. 5 passed; 0 failed; 0 ignored;\nsignal: 6, SIGABRT";
        assert_eq!((read(aborted, false).passed, read(aborted, false).failed), (5, 1));
    }

    #[test]
    fn progress_is_left_out() {
        let output = "    Checking a v1\nerror: x\n   Compiling b v2\nCompiling is hard";
        assert_eq!(without_progress(output), "error: x\nCompiling is hard");
    }

    #[test]
    fn a_story_holds_what_the_failed_test_said() {
        let output = "noise\n---- a stdout ----\nseed 77 fails\nfailures:\n    a\nnoise";
        let story = story(output, 3);
        assert!(story.starts_with("---- a stdout ----\nseed 77 fails\n[...]"), "{story}");
        assert!(story.ends_with("noise"), "{story}");
    }
}
