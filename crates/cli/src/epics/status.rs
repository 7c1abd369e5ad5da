//! The texts that the EPICS tools print for status codes.

use fodo_ca::eca::Eca;

/// Message numbers (status codes without their three severity bits) that servers send, with the texts of libca 7.0.10.
const MESSAGES: [(u32, &str); 13] = [
    (6, "Unable to allocate additional dynamic memory"),
    (9, "The requested data transfer is greater than available memory or EPICS_CA_MAX_ARRAY_BYTES"),
    (10, "User specified timeout on IO operation expired"),
    (14, "The data type specified is invalid"),
    (17, "Channel Access Internal Failure"),
    (19, "Channel read request failed"),
    (20, "Channel write request failed"),
    (22, "Invalid element count requested"),
    (24, "Virtual circuit disconnect"),
    (45, "Put callback timed out"),
    (46, "Read access denied"),
    (47, "Write access denied"),
    (50, "No reasonable data conversion between client and server types"),
];

/// The text of a status.
pub fn message(status: Eca) -> String {
    let known = MESSAGES.iter().find(|&&(number, _)| number == status.0 >> 3);
    known.map_or_else(|| format!("status {}", status.0), |&(_, words)| words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_status_codes_have_epics_messages_and_unknown_ones_their_number() {
        assert_eq!(message(Eca::PUTFAIL), "Channel write request failed");
        assert_eq!(message(Eca(99 << 3)), "status 792");
    }
}
