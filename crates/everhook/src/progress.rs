//! Progress of long work: a bar on standard error, and only for a person who looks at a terminal.
//! Standard output is left to results.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that is drawn as long as it lives.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar at 0 of `total`, or of an unknown number. Nothing is drawn unless it is `shown` and
    /// standard error is a terminal.
    pub(crate) fn start(what: &'static str, total: Option<u64>, shown: bool) -> Self {
        let target = match shown {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(total, target);
        bar.set_style(style(total.is_some()));
        bar.set_message(what);
        Self(bar)
    }

    /// What is going on, from now on.
    pub(crate) fn say(&self, what: &'static str) {
        self.0.set_message(what);
    }

    /// So much is done, of what there was at the start.
    pub(crate) fn at(&self, done: u64) {
        self.0.set_position(done);
    }

    /// Takes the bar away; what has been done is told by the result.
    pub(crate) fn end(self) {
        self.0.finish_and_clear();
    }
}

fn style(has_total: bool) -> ProgressStyle {
    // A template that cannot be read would be a mistake here, and is no reason to fail.
    ProgressStyle::with_template(template(has_total))
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

fn template(has_total: bool) -> &'static str {
    match has_total {
        true => "{msg} [{bar:40}] {human_pos}/{human_len}, {eta} left",
        false => "{msg} {human_pos}, {elapsed}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_can_be_read() {
        for has_total in [true, false] {
            let template = template(has_total);
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
