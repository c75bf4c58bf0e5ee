# Makes wheels: wheels.py FOLDER WHEELS FILES_PER_WHEEL. Prints the names of the packages.
import base64, hashlib, os, random, sys, zipfile

folder, wheels, files = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
chance = random.Random(5)
for number in range(wheels):
    name = f"package_{number}"
    info = f"{name}-1.0.dist-info"
    contents = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    for file in range(files):
        size = min(int(1024 * chance.lognormvariate(0, 1.6)), 1 << 20)
        contents[f"{name}/part_{file // 12}/module_{file}.py"] = chance.randbytes(size)
    record = ""
    for path, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(content)}\n"
    contents[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    with zipfile.ZipFile(os.path.join(folder, f"{name}-1.0-py3-none-any.whl"), "w") as wheel:
        for path, content in contents.items():
            wheel.writestr(path, content)
    print(name)
