//! The protocols of EPICS that this crate speaks.

use std::fmt;

/// A protocol of EPICS.
///
/// Bare names of PVs use [`ClientConfig::default_protocol`](crate::ClientConfig::default_protocol); a scheme before the
/// name selects one.
///
/// # Examples
///
/// ```
/// use fodo_net::Protocol;
///
/// assert_eq!(Protocol::split("pva://lab:gap"), (Some(Protocol::Pva), "lab:gap"));
/// assert_eq!(Protocol::split("ca://lab:gap"), (Some(Protocol::Ca), "lab:gap"));
/// assert_eq!(Protocol::split("lab:gap"), (None, "lab:gap"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// Channel Access.
    #[default]
    Ca,
    /// pvAccess.
    Pva,
}

impl Protocol {
    /// All protocols, the default first.
    const ALL: [Protocol; 2] = [Protocol::Ca, Protocol::Pva];

    /// Splits a scheme, `ca://` or `pva://`, off the name of a PV. Without one of these the name is returned unchanged.
    /// See the example of [`Protocol`].
    pub fn split(name: &str) -> (Option<Protocol>, &str) {
        let found = Protocol::ALL.into_iter().find_map(|protocol| {
            let rest = name.strip_prefix(protocol.label())?.strip_prefix("://")?;
            Some((Some(protocol), rest))
        });
        found.unwrap_or((None, name))
    }

    /// The protocol with this label, in capitals or small letters.
    pub(crate) fn labelled(label: &str) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|protocol| protocol.label().eq_ignore_ascii_case(label))
    }

    /// As in texts.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Protocol::Ca => "Channel Access",
            Protocol::Pva => "pvAccess",
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Protocol::Ca => "ca",
            Protocol::Pva => "pva",
        }
    }
}

/// What a new connection to a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CircuitKind {
    /// Channel Access.
    Ca,
    /// pvAccess.
    Pva,
    /// pvAccess within TLS.
    PvaTls,
}

impl fmt::Display for Protocol {
    /// As in a scheme: `ca` or `pva`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_selects_the_protocol_and_is_not_part_of_the_name() {
        for (name, expected) in [
            ("x", (None, "x")),
            ("ca://x", (Some(Protocol::Ca), "x")),
            ("pva://x", (Some(Protocol::Pva), "x")),
            ("pva://x{\"a\":1}", (Some(Protocol::Pva), "x{\"a\":1}")),
            ("pva://", (Some(Protocol::Pva), "")),
            ("pva://ca://x", (Some(Protocol::Pva), "ca://x")),
            ("", (None, "")),
        ] {
            assert_eq!(Protocol::split(name), expected, "{name}");
        }
    }

    #[test]
    fn other_prefixes_are_part_of_the_name() {
        for name in ["pva:x", "pva:/x", "://x", "x://y", "PVA://x", "pvas://x", "xca://y", "ca", "capva://x"] {
            assert_eq!(Protocol::split(name), (None, name));
        }
    }

    #[test]
    fn a_protocol_is_displayed_and_read_by_its_label() {
        for protocol in Protocol::ALL {
            assert_eq!(Protocol::labelled(&protocol.to_string()), Some(protocol));
            assert_eq!(Protocol::labelled(&protocol.to_string().to_uppercase()), Some(protocol));
        }
        assert_eq!((Protocol::labelled(""), Protocol::labelled("pvas")), (None, None));
        assert_eq!(Protocol::default(), Protocol::Ca);
    }
}
