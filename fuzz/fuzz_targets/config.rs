//! A configuration file, as `everhook serve --config` reads it.
//!
//! The configuration belongs to the program, which is no library; its module stands on its own and
//! is built in here.

#![no_main]

#[expect(dead_code, unused_imports, reason = "the program uses more of it than its parser")]
#[path = "../../crates/everhook/src/config/mod.rs"]
mod config;

use config::Sources;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let file = Some(("everhook.toml".into(), text.to_owned()));
    let sources = Sources { file, ..Sources::default() };
    if let Err(problems) = config::load(&sources) {
        assert!(!problems.to_string().is_empty());
    }
});
