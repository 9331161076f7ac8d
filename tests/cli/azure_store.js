// Makes a container at Azurite, or compares one with what a run left on disk, by Microsoft's own client: `.ci/store-proofs`.
const crypto = require("crypto");
const fs = require("fs");
const path = require("path");
const { BlobServiceClient, StorageSharedKeyCredential } = require("@azure/storage-blob");

// Azurite's account, which is the same everywhere.
const account = "devstoreaccount1";
const key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const service = new BlobServiceClient(
    `${process.env.AZURITE_BLOB_STORAGE_URL}/${account}`,
    new StorageSharedKeyCredential(account, key),
);

const sha256 = (content) => crypto.createHash("sha256").update(content).digest("hex");

async function create(name) {
    for (let tries = 0; ; tries += 1) {
        try {
            return await service.getContainerClient(name).createIfNotExists();
        } catch (error) {
            if (tries === 50) throw error;
            await new Promise((resolve) => setTimeout(resolve, 200));
        }
    }
}

async function compare(name, folder) {
    const container = service.getContainerClient(name);
    const expected = new Map();
    for (const input of ["small.png", "large.png"]) {
        const content = fs.readFileSync(path.join(folder, input));
        expected.set(`refs/inputs/${sha256(content)}.png`, content);
    }
    for (const dir of ["", "sidecars"]) {
        for (const entry of fs.readdirSync(path.join(folder, "output/stills", dir), { withFileTypes: true })) {
            const is_output = dir === "sidecars" || entry.name.endsWith(".png");
            if (!entry.isFile() || !is_output) continue;
            const file = path.join("output/stills", dir, entry.name);
            expected.set(path.join("out/stills", dir, entry.name), fs.readFileSync(path.join(folder, file)));
        }
    }
    const found = [];
    for await (const blob of container.listBlobsFlat({ includeMetadata: true })) {
        found.push(blob.name);
        const content = expected.get(blob.name);
        if (!content) throw new Error(`${blob.name} is not on disk`);
        if (!content.equals(await container.getBlobClient(blob.name).downloadToBuffer())) {
            throw new Error(`${blob.name} holds something else`);
        }
        const said = blob.metadata || {};
        if (blob.name.startsWith("out/") && (said.callsheet_batch !== "stills" || said.callsheet_sha256 !== sha256(content))) {
            throw new Error(`${blob.name} says ${JSON.stringify(said)}`);
        }
    }
    const missing = [...expected.keys()].filter((name) => !found.includes(name));
    if (missing.length > 0) throw new Error(`not in the store: ${missing}`);
    console.log(`${found.length} objects are what is on disk`);
}

const [verb, ...rest] = process.argv.slice(2);
({ create, compare })[verb](...rest).catch((error) => {
    console.error(error.message);
    process.exit(1);
});
