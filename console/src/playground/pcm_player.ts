export function decodeBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

/** Plays mono 16-bit samples as they arrive. */
export class PcmPlayer {
  private readonly context: AudioContext;
  private readonly received: Uint8Array<ArrayBuffer>[] = [];
  /** The time of the context at which the samples so far end. */
  private end = 0;
  private oddByte: number | null = null;
  private samples = 0;

  constructor(private readonly sampleRate: number) {
    this.context = new AudioContext({ sampleRate });
  }

  /** The duration of the samples so far. */
  get seconds(): number {
    return this.samples / this.sampleRate;
  }

  /** The duration of the samples that were not played yet. */
  get remainingSeconds(): number {
    return Math.max(0, this.end - this.context.currentTime);
  }

  /** Frees the audio device: browsers have few of them. */
  closeAfter(seconds: number): void {
    setTimeout(() => this.context.close(), seconds * 1000);
  }

  /** Appends samples in base64. A sample may be divided between two calls. */
  play(base64: string): void {
    const bytes = decodeBase64(base64);
    this.received.push(bytes);
    const whole = this.wholeSamples(bytes);
    const view = new DataView(whole.buffer);
    const count = whole.length / 2;
    if (count === 0) return;
    const buffer = this.context.createBuffer(1, count, this.sampleRate);
    const channel = buffer.getChannelData(0);
    for (let index = 0; index < count; index += 1) channel[index] = view.getInt16(2 * index, true) / 2 ** 15;
    const source = this.context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.context.destination);
    this.end = Math.max(this.end, this.context.currentTime);
    source.start(this.end);
    this.end += buffer.duration;
    this.samples += count;
  }

  /** Returns all samples as a WAV file. */
  wav(): Blob {
    const size = this.samples * 2;
    const header = new DataView(new ArrayBuffer(44));
    const text = (offset: number, value: string) => {
      for (let index = 0; index < value.length; index += 1) header.setUint8(offset + index, value.charCodeAt(index));
    };
    text(0, "RIFF");
    header.setUint32(4, 36 + size, true);
    text(8, "WAVEfmt ");
    header.setUint32(16, 16, true);
    header.setUint16(20, 1, true);
    header.setUint16(22, 1, true);
    header.setUint32(24, this.sampleRate, true);
    header.setUint32(28, this.sampleRate * 2, true);
    header.setUint16(32, 2, true);
    header.setUint16(34, 16, true);
    text(36, "data");
    header.setUint32(40, size, true);
    return new Blob([header, ...this.received], { type: "audio/wav" });
  }

  private wholeSamples(bytes: Uint8Array): Uint8Array {
    const joined = this.oddByte === null ? bytes : Uint8Array.of(this.oddByte, ...bytes);
    const isOdd = joined.length % 2 === 1;
    this.oddByte = isOdd ? (joined.at(-1) ?? null) : null;
    return joined.slice(0, joined.length - (isOdd ? 1 : 0));
  }
}
