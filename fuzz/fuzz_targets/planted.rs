//! A planted fault, which every run has to find: else the others prove nothing.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    assert!(!matches!(input, [b'{', b'"', b'i', b'd', ..]), "the planted fault was found");
});
