//! What a server counts.

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])* $name:ident $text:literal;)*) => {
        /// Why a datagram was not answered.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum DropReason {
            $($(#[doc = $doc])* $name,)*
        }

        impl DropReason {
            /// All reasons.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$name),*];

            /// The reason in words.
            pub fn text(self) -> &'static str {
                match self {
                    $(DropReason::$name => $text,)*
                }
            }
        }
    };
}

drop_reasons! {
    /// The datagram is empty, or its length is not that of whole blocks. No key was tried.
    NotWholeBlocks "no whole blocks";
    /// The datagram is longer than real CLUs accept. No key was tried.
    TooLong "too long";
    /// The address of the sender has sent too many datagrams. No key was tried.
    RequestFlood "too many datagrams from one address";
    /// The address of the sender has sent too many datagrams that the key of the project does not decrypt.
    StrangerFlood "too many datagrams without the key from one address";
    /// No valid key results in a command.
    NoKeyFits "no key fits";
    /// The script is not UTF-8, as after a change of its bytes on the network.
    NotText "not a text";
    /// The command is not one that is answered when it is broadcast or encrypted with the key of all installations.
    NotForBroadcast "not a command for broadcasts";
    /// A discovery, a new address or a new key while they are not accepted.
    CommissioningOff "commissioning is off";
    /// A broadcast for another CLU, or for another address than that of this CLU.
    OtherClu "for another CLU";
    /// A reset while one is in progress.
    ResetInProgress "reset in progress";
}

/// What happened since the start of a server. Each datagram was dropped, was answered, or waits for its answer:
/// `received = n_dropped() + answered + waiting`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CluServerCounts {
    /// Datagrams that were received.
    pub received: u64,
    /// Requests that were answered, with the refused ones.
    pub answered: u64,
    /// Requests that wait for an answer of the caller.
    pub waiting: u64,
    /// Requests that were answered with an error.
    pub refused: u64,
    /// Values of scripts that were replaced by an error because they were too long.
    pub values_too_long: u64,
    /// Registrations that were not made because of a limit or of an invalid address.
    pub registrations_refused: u64,
    /// Reports that were sent.
    pub reports: u64,
    /// Times at which the values of a subscription had not changed.
    pub reports_unchanged: u64,
    /// Reports that were not sent because the values were too long for a datagram.
    pub reports_too_long: u64,
    /// Subscriptions that ended because no client renewed them.
    pub subscriptions_expired: u64,
    /// Requests for values of a subscription that the caller did not answer in time; they are repeated.
    pub fetches_unanswered: u64,
    /// Values of subscriptions that were received too late, or after the subscription was renewed or ended.
    pub fetches_late: u64,
    /// Keys of the project that were set.
    pub keys_set: u64,
    dropped: [u64; DropReason::ALL.len()],
}

impl CluServerCounts {
    /// Datagrams that were dropped for one reason.
    pub fn n_dropped_for(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Datagrams that were dropped for any reason.
    pub fn n_dropped(&self) -> u64 {
        self.dropped.iter().sum()
    }

    pub(super) fn dropped(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_counter_and_text() {
        let mut counts = CluServerCounts::default();
        for (index, reason) in DropReason::ALL.iter().enumerate() {
            for _ in 0..=index {
                counts.dropped(*reason);
            }
        }

        for (index, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(counts.n_dropped_for(*reason), index as u64 + 1, "{}", reason.text());
        }
        let texts: std::collections::HashSet<_> = DropReason::ALL.iter().map(|reason| reason.text()).collect();
        assert_eq!(texts.len(), DropReason::ALL.len());
    }
}
