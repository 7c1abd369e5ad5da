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
