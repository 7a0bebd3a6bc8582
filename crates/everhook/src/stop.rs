//! The wish to stop: SIGTERM or SIGINT. The first asks, the second ends the process at once.

use std::process;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Exit, Failure};

/// Listens for the signals that end the process.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Begins to listen: from now on the signals no longer end the process by themselves.
    ///
    /// # Errors
    /// The operating system refuses.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::failed(format!("signals cannot be received: {error}")))
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Returns at the next signal, with its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// Ends the process at the next signal. Nothing accepted is lost: the store is as a crash
    /// leaves it.
    pub(crate) async fn end_at_next(&mut self) -> ! {
        let name = self.next().await;
        tracing::warn!(signal = name, "ended at once by a second signal");
        process::exit(i32::from(Exit::Failed as u8));
    }
}
