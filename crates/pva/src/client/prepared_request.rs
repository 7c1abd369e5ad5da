//! A pvRequest in the form in which it is sent.

use fodo_data::{Structure, Text};

use crate::limit;
use crate::request::PvRequest;

/// A pvRequest in the form in which it is sent. Created once, it serves any number of operations on any circuit.
///
/// ```
/// use fodo_pva::client::PreparedRequest;
/// use fodo_pva::request::PvRequest;
///
/// let request = PvRequest::parse("field(value)record[pipeline=true,queueSize=8]")?;
/// assert_eq!(PreparedRequest::new(&request).window(), Some(8));
/// # Ok::<(), fodo_pva::request::RequestSyntax>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedRequest {
    structure: Structure,
    window: Option<u32>,
    has_effect: bool,
}

impl PreparedRequest {
    /// Prepares a pvRequest.
    pub fn new(request: &PvRequest) -> PreparedRequest {
        let is_pipelined = request.option("pipeline").is_some_and(|pipeline| pipeline.as_bytes() == b"true");
        let queue_size = || request.option("queueSize").and_then(|size| size.to_str().parse().ok());
        let window = is_pipelined.then(|| queue_size().unwrap_or(limit::QUEUE_SIZE as u32).max(1));
        let processes = |process: &Text| !matches!(process.as_bytes(), b"false" | b"0" | b"passive");
        let has_effect = request.option("process").is_some_and(processes);
        PreparedRequest { structure: request.to_structure(), window, has_effect }
    }

    /// Whether a get with it processes a record (`record[process=true]`): then each get is a request of its own.
    pub(super) fn has_effect(&self) -> bool {
        self.has_effect
    }

    /// With flow control (`record[pipeline=true]`): how many updates a server may send before the client acknowledges
    /// some of them; 4 unless the option `queueSize` contains another number.
    pub fn window(&self) -> Option<u32> {
        self.window
    }

    pub(super) fn structure(&self) -> &Structure {
        &self.structure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_control_needs_an_option_and_has_a_window_of_at_least_one_update() {
        for (text, window) in [
            ("", None),
            ("record[queueSize=9]", None),
            ("record[pipeline=false,queueSize=9]", None),
            ("record[pipeline=true]", Some(4)),
            ("record[pipeline=true,queueSize=9]", Some(9)),
            ("record[pipeline=true,queueSize=0]", Some(1)),
            ("record[pipeline=true,queueSize=many]", Some(4)),
        ] {
            assert_eq!(PreparedRequest::new(&PvRequest::parse(text).unwrap()).window(), window, "{text}");
        }
    }
}
