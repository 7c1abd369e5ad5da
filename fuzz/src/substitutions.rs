//! `.substitutions` files and templates: as databases, and as the text that `fodo expand` prints.
//!
//! The file is called `main`; templates and included files follow lines `%%NAME`.

use fodo_db::{Macros, UndefinedMacros};

use super::{files, ioc};

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(macros) = Macros::parse("P=X:,Q=$(P)y,N=2") else { unreachable!("these are macros") };
    for undefined in [UndefinedMacros::Keep, UndefinedMacros::Mark] {
        match fodo_db::expand("main", &mut macros.clone(), undefined, &mut files::open(&text)) {
            Ok(expanded) => assert!(expanded.undefined.iter().all(|error| error.line > 0)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    match fodo_db::template_sets("main", bytes, &macros) {
        Ok((_, warnings)) => assert!(warnings.iter().all(|warning| warning.line > 0)),
        Err(error) => assert!(error.line > 0),
    }
    ioc::load_and_play(&text, |loader, open| {
        if let Err(errors) = loader.load_template("main", "P=X:", open) {
            assert!(!errors.is_empty() && errors.iter().all(|error| !error.to_string().is_empty()));
        }
    });
}
