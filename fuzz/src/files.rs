//! An input that consists of several files.

/// Opens the parts of an input as files: the first is `main`, others follow a line `%%NAME`.
pub fn open(text: &str) -> impl FnMut(&str) -> std::io::Result<Vec<u8>> + use<'_> {
    move |part_name| {
        let (main, others) = text.split_once("\n%%").unwrap_or((text, ""));
        let mut parts = others.split("\n%%").filter_map(|part| part.split_once('\n'));
        let found = match part_name {
            "main" => Some(main),
            _ => parts.find(|(name, _)| *name == part_name).map(|(_, body)| body),
        };
        found.map(|body| body.as_bytes().to_vec()).ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }
}
