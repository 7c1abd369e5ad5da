//! What a client may do with a channel.

/// The access rights of a client to a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// May read and monitor.
    pub read: bool,
    /// May write.
    pub write: bool,
}

impl From<u32> for Rights {
    #[inline]
    fn from(bits: u32) -> Rights {
        Rights { read: bits & 1 != 0, write: bits & 2 != 0 }
    }
}

impl From<Rights> for u32 {
    #[inline]
    fn from(rights: Rights) -> u32 {
        u32::from(rights.read) | u32::from(rights.write) << 1
    }
}

impl std::fmt::Display for Rights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match (self.read, self.write) {
            (true, true) => "read,write",
            (true, false) => "read",
            (false, true) => "write",
            (false, false) => "none",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_convert_to_and_from_their_bits_and_have_a_text() {
        for (bits, read, write, text) in [
            (0, false, false, "none"),
            (1, true, false, "read"),
            (2, false, true, "write"),
            (3, true, true, "read,write"),
        ] {
            let rights = Rights { read, write };

            assert_eq!((Rights::from(bits), u32::from(rights)), (rights, bits));
            assert_eq!(Rights::from(bits | 0xffff_fffc), rights, "other bits have no meaning");
            assert_eq!(rights.to_string(), text);
        }
    }
}
