//! The identity of a running server.

use std::fmt;

/// 12 random bytes that a server chooses when it starts. A client recognizes a restarted server, and a gateway its own
/// server, by them. They print as 24 hexadecimal digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Guid(pub [u8; 12]);

impl Guid {
    /// Creates an identity from 96 bits that no other start of a server has: random ones, or ones derived from the time,
    /// the process and the address.
    pub fn from_bits(high: u64, low: u32) -> Guid {
        let bits = (u128::from(high) << 32) + u128::from(low);
        Guid(std::array::from_fn(|index| (bits >> (8 * (11 - index))) as u8))
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for Guid {
    /// As 24 hexadecimal digits, as pvlist prints them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_contains_all_bits_it_is_made_of() {
        let guid = Guid::from_bits(0x0123_4567_89ab_cdef, 0xfedc_ba98);

        assert_eq!(guid.to_string(), "0123456789ABCDEFFEDCBA98");
    }
}
