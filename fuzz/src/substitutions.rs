//! `.substitutions` files and templates: as databases, and as the text that `fodo expand` makes of them.
//!
//! The file is called `main`; templates and what is included stand behind lines `%%NAME`.

use fodo_db::{Macros, Undefined};

use super::{files, ioc};

/// Feeds one input.
pub fn feed(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(macros) = Macros::parse("P=X:,Q=$(P)y,N=2") else { unreachable!("these are macros") };
    for undefined in [Undefined::Kept, Undefined::Refused] {
        if let Err(errors) = fodo_db::expand("main", &macros, undefined, &mut files::open(&text)) {
            assert!(!errors.is_empty() && errors.iter().all(|error| !error.to_string().is_empty()));
        }
    }
    ioc::load_and_play(&text, |loader, open| {
        if let Err(errors) = loader.load_template("main", "P=X:", open) {
            assert!(!errors.is_empty() && errors.iter().all(|error| !error.to_string().is_empty()));
        }
    });
}
