// The other side of `.ci/store-proofs`: makes a container at Azurite, compares one with what runs left on disk by Microsoft's
// own client, asks the emulator what was charged, and stands between a client and Azurite where requests fail.
const crypto = require("crypto");
const fs = require("fs");
const http = require("http");
const path = require("path");

// Azurite's account, which is the same everywhere.
const account = "devstoreaccount1";
const key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

function containerOf(name) {
    const { BlobServiceClient, StorageSharedKeyCredential } = require("@azure/storage-blob");
    const address = `${process.env.AZURITE_BLOB_STORAGE_URL}/${account}`;
    return new BlobServiceClient(address, new StorageSharedKeyCredential(account, key)).getContainerClient(name);
}

const sha256 = (content) => crypto.createHash("sha256").update(content).digest("hex");

async function create(name) {
    for (let tries = 0; ; tries += 1) {
        try {
            return await containerOf(name).createIfNotExists();
        } catch (error) {
            if (tries === 50) throw error;
            await new Promise((resolve) => setTimeout(resolve, 200));
        }
    }
}

// Every batch on disk, and every input, is in the store, and nothing else is.
async function compare(name, folder) {
    const expected = new Map();
    for (const input of fs.readdirSync(folder).filter((file) => file.endsWith(".png"))) {
        const content = fs.readFileSync(path.join(folder, input));
        expected.set(`refs/inputs/${sha256(content)}.png`, { content });
    }
    const batches = fs.readdirSync(path.join(folder, "output"), { withFileTypes: true });
    for (const batch of batches.filter((entry) => entry.isDirectory()).map((entry) => entry.name)) {
        for (const dir of ["", "sidecars"]) {
            const found = path.join(folder, "output", batch, dir);
            for (const entry of fs.existsSync(found) ? fs.readdirSync(found, { withFileTypes: true }) : []) {
                const is_output = dir === "sidecars" || entry.name.endsWith(".png");
                if (!entry.isFile() || !is_output) continue;
                const content = fs.readFileSync(path.join(found, entry.name));
                expected.set(path.join("out", batch, dir, entry.name), { content, batch });
            }
        }
    }
    const found = [];
    const container = containerOf(name);
    for await (const blob of container.listBlobsFlat({ includeMetadata: true })) {
        found.push(blob.name);
        const { content, batch } = expected.get(blob.name) || {};
        if (!content) throw new Error(`${blob.name} is not on disk`);
        if (!content.equals(await container.getBlobClient(blob.name).downloadToBuffer())) {
            throw new Error(`${blob.name} holds something else`);
        }
        const said = blob.metadata || {};
        // Values are visible ASCII; what is not is written as %XX.
        if (batch && (decodeURIComponent(said.callsheet_batch) !== batch || said.callsheet_sha256 !== sha256(content))) {
            throw new Error(`${blob.name} says ${JSON.stringify(said)}`);
        }
    }
    const missing = [...expected.keys()].filter((name) => !found.includes(name));
    if (missing.length > 0) throw new Error(`not in the store: ${missing}`);
    console.log(`${found.length} objects are what is on disk`);
}

// So many jobs were bought, each once.
async function paid(base_url, jobs) {
    const { tasks } = await (await fetch(`${base_url}/emulator/audit`)).json();
    const others = tasks.filter((task) => task.charges !== 1 || task.refunds !== 0 || task.status !== "success");
    if (tasks.length !== Number(jobs) || others.length > 0) {
        throw new Error(`${tasks.length} of ${jobs} tasks: ${JSON.stringify(others, null, 1)}`);
    }
    console.log(`${jobs} jobs were paid once`);
}

// Passes requests on to Azurite; the next PUTs meet a fault, as often as is said. Prints its port; fails at its end where none
// met one.
function proxy(fault, times) {
    const azurite = new URL(process.env.AZURITE_BLOB_STORAGE_URL);
    let left = Number(times);
    const server = http.createServer((request, response) => {
        const pieces = [];
        request.on("data", (piece) => pieces.push(piece));
        request.on("end", () => {
            const content = Buffer.concat(pieces);
            const struck = request.method === "PUT" && left > 0 ? fault : "none";
            if (struck !== "none") left -= 1;
            if (struck === "cut") return request.socket.destroy();
            if (struck === "busy") {
                response.writeHead(503, { "x-ms-error-code": "ServerBusy" });
                return response.end("<?xml version='1.0'?><Error><Code>ServerBusy</Code></Error>");
            }
            if (struck === "damaged" && content.length > 0) content[content.length - 1] ^= 1;
            const { method, headers, url } = request;
            const onward = http.request({ host: azurite.hostname, port: azurite.port, method, path: url, headers });
            onward.on("error", () => request.socket.destroy());
            onward.on("response", (answer) => {
                if (struck === "unanswered" || struck === "damaged") {
                    answer.resume();
                    return request.socket.destroy();
                }
                response.writeHead(answer.statusCode, answer.headers);
                answer.pipe(response);
            });
            onward.end(content);
        });
    });
    process.on("SIGTERM", () => process.exit(left < Number(times) ? 0 : 1));
    server.listen(0, "127.0.0.1", () => console.log(server.address().port));
    return new Promise(() => {});
}

const [verb, ...rest] = process.argv.slice(2);
({ create, compare, paid, proxy })[verb](...rest).catch((error) => {
    console.error(error.message);
    process.exit(1);
});
