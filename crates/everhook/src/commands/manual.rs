//! `everhook completions` and `everhook man`: what is known of the command line, for shells and as
//! manual pages. Both are made from the same definitions as the help.

use std::fs;
use std::path::Path;

use clap::CommandFactory as _;

use crate::cli::{Cli, CompletionsArgs, ManArgs};
use crate::exit::Failure;
use crate::output;

/// Prints what a shell reads to complete the command line.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "everhook", &mut script);
    output::line(String::from_utf8_lossy(&script).trim_end())
}

/// Writes a page for each command.
///
/// # Errors
/// The directory or a page cannot be written.
pub(crate) fn pages(args: &ManArgs) -> Result<(), Failure> {
    let to = &args.to;
    let failed = |error| Failure::failed(format!("{} cannot be written: {error}", to.display()));
    fs::create_dir_all(to).map_err(failed)?;
    let mut command = Cli::command();
    // Gives each subcommand its full name, as `everhook config check`.
    command.build();
    let pages = write_pages(&command, "everhook", to).map_err(failed)?;
    output::line(format!("{pages} pages written to {}", to.display()))
}

/// Writes the page of a command and those of its subcommands; how many.
fn write_pages(command: &clap::Command, name: &str, to: &Path) -> std::io::Result<usize> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name.to_owned()).render(&mut page)?;
    fs::write(to.join(format!("{name}.1")), page)?;
    let mut written = 1;
    for subcommand in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        written += write_pages(subcommand, &format!("{name}-{}", subcommand.get_name()), to)?;
    }
    Ok(written)
}
