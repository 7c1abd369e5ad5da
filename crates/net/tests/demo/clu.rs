// An expression for the examples of the documentation: the address and the key of a CLU on loopback that knows a few
// expressions, and the value 1 of each item.
{
    use std::net::{SocketAddr, UdpSocket};

    use fodo_clu::cipher::hash;
    use fodo_clu::command::{Reply, Request};
    use fodo_net::clu::{CipherKey, MacAddress, Pin, Serial};

    fn value(script: &str) -> String {
        match script {
            "checkAlive()" => "0d0a1b2c".into(),
            "1+1" => "2".into(),
            _ if script.starts_with("SYSTEM:clientRegister") => {
                let client_id = script.split(',').nth(2).unwrap_or_default();
                format!("clientReport:{client_id}:{{1}}")
            }
            _ if script.contains(":get(") || script.contains(":set(") => "1".into(),
            _ => "nil".into(),
        }
    }

    fn serve(socket: &UdpSocket, key: &CipherKey) -> std::io::Result<()> {
        let (mut datagram, mut buffer) = (vec![0; 2048], Vec::new());
        loop {
            let (n_bytes, from): (usize, SocketAddr) = socket.recv_from(&mut datagram)?;
            let command = key.decrypt(&datagram[..n_bytes], &mut buffer).and_then(Request::decode);
            let (mut plain, mut reply) = (Vec::new(), Vec::new());
            if let Some(Request::Execute { session, script, .. }) = command {
                let value = value(&String::from_utf8_lossy(script));
                Reply::Executed { clu: None, session, value: value.as_bytes() }.encode(&mut plain);
                key.encrypt(&plain, &mut reply);
            } else if let Some(command) = CipherKey::broadcast().decrypt(&datagram[..n_bytes], &mut buffer)
                && let Some(Request::Discover { challenge, iv, .. }) = Request::decode(command)
            {
                let pin = Pin::new("12345678").expect("a PIN");
                let temporary = CipherKey::initial(&pin, [5; 16]);
                let proof = temporary.seal(&hash(&key.open(challenge).expect("the key of the demonstration")));
                let (serial, mac) = (Serial(0x0d0a1b2c), MacAddress([2, 0, 0, 0, 0, 1]));
                Reply::Discovered { proof: &proof, iv: temporary.iv(), serial, mac }.encode(&mut plain);
                CipherKey::broadcast().with_iv(*iv).encrypt(&plain, &mut reply);
            }
            socket.send_to(&reply, from)?;
        }
    }

    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = socket.local_addr().expect("an address");
    let key = CipherKey::new([1; 16], [2; 16]);
    let of_clu = key.clone();
    std::thread::spawn(move || serve(&socket, &of_clu));
    (address, key)
}
