//! Database files: valid ones start and process, invalid ones are rejected with a position.
//!
//! The file is called `main`; included files follow lines `%%NAME`.

use super::ioc;

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    ioc::load_and_play(&text, |loader, open| {
        let before = "record(calc, before) { field(CALC, \"VAL+1\") field(SCAN, \"1 second\") }";
        let loaded = loader.load("before", "", &mut |_| Ok(before.as_bytes().to_vec()));
        assert_eq!(loaded, Ok(()));
        if let Err(errors) = loader.load("main", "P=X:,Q=$(P)y,N=2", open) {
            assert!(!errors.is_empty());
            assert!(errors.iter().all(|error| !error.message.is_empty() && !error.to_string().is_empty()));
        }
    });
}
