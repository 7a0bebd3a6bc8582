//! What the demo shows: one line for everything that happens, with the seconds since its start.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use everhook_domain::time::Clock;

use crate::exit::Failure;
use crate::output;

/// How a line is coloured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tone {
    /// As it is.
    Plain,
    /// It went well.
    Good,
    /// It will be tried again.
    Waiting,
    /// It went wrong for good.
    Bad,
    /// Somebody did something.
    Action,
}

impl Tone {
    /// The ANSI code (ECMA-48 §8.3.117) that begins the colour.
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Good => "\x1b[32m",
            Self::Waiting => "\x1b[33m",
            Self::Bad => "\x1b[1;31m",
            Self::Action => "\x1b[36m",
        }
    }
}

const RESET: &str = "\x1b[0m";
const DIM: &str = "\x1b[2m";
/// Width of the column that says what happened.
const WHAT_COLUMN: usize = 11;

/// Where the demo's lines go.
pub(crate) struct Screen {
    clock: Arc<dyn Clock>,
    began: Duration,
    colour: bool,
    quiet: bool,
}

impl Screen {
    /// A screen whose time begins now. A quiet one shows nothing.
    pub(crate) fn new(clock: Arc<dyn Clock>, colour: bool, quiet: bool) -> Self {
        let began = clock.monotonic();
        Self { clock, began, colour, quiet }
    }

    /// Something happened: what, and to what.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(crate) fn tell(&self, tone: Tone, what: &str, rest: impl Display) -> Result<(), Failure> {
        let seconds = self.clock.monotonic().saturating_sub(self.began).as_secs_f64();
        let [begin, dim, reset] =
            if self.colour { [tone.code(), DIM, RESET] } else { ["", "", ""] };
        self.print(format_args!(
            "{dim}{seconds:>6.2}s{reset}  {begin}{what:<WHAT_COLUMN$}{reset} {rest}"
        ))
    }

    /// A line without a time.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(crate) fn print(&self, line: impl Display) -> Result<(), Failure> {
        if self.quiet { Ok(()) } else { output::line(line) }
    }
}
