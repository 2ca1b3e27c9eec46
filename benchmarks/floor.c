/* What a chain-step of logistic regression costs in plain C: the gradient of 64 random rows of 784
 * floats out of 12,000, without noise, update or storage. Microseconds per step, on one core:
 *
 *     gcc -O3 -march=native benchmarks/floor.c -o /tmp/floor && /tmp/floor
 *
 * and on two at once, where they share the memory:
 *
 *     /tmp/floor & /tmp/floor; wait
 */
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROWS = 12000, WEIGHTS = 784, BATCH = 64, STEPS = 4096, REPEATS = 5, LANES = 8 };

static float *data, theta[WEIGHTS], gradient[WEIGHTS];
static int chosen[STEPS][BATCH];

static const float *row(int step, int i) { return data + (size_t)chosen[step][i] * WEIGHTS; }

static float product(const float *x) {
    __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int j = 0; j < WEIGHTS; j += 2 * LANES)
        for (int k = 0; k < 2; k++) {
            int at = j + k * LANES;
            sums[k] = _mm256_fmadd_ps(_mm256_loadu_ps(x + at), _mm256_loadu_ps(theta + at), sums[k]);
        }
    float parts[LANES], total = 0;
    _mm256_storeu_ps(parts, _mm256_add_ps(sums[0], sums[1]));
    for (int k = 0; k < LANES; k++) total += parts[k];
    return total;
}

static void add_row(float weight, const float *x) {
    __m256 w = _mm256_set1_ps(weight);
    for (int j = 0; j < WEIGHTS; j += LANES)
        _mm256_storeu_ps(gradient + j,
                         _mm256_fmadd_ps(w, _mm256_loadu_ps(x + j), _mm256_loadu_ps(gradient + j)));
}

static void read_once(int step) {
    for (int i = 0; i < BATCH; i++) gradient[0] += product(row(step, i));
}

static void two_passes(int step) {
    float weights[BATCH];
    for (int i = 0; i < BATCH; i++) weights[i] = 1e-6f * product(row(step, i));
    for (int j = 0; j < WEIGHTS; j += LANES) {
        __m256 sum = _mm256_setzero_ps();
        for (int i = 0; i < BATCH; i++)
            sum = _mm256_fmadd_ps(_mm256_set1_ps(weights[i]), _mm256_loadu_ps(row(step, i) + j), sum);
        _mm256_storeu_ps(gradient + j, sum);
    }
}

static void one_pass(int step) {
    for (int i = 0; i < BATCH; i++) {
        if (i + 1 < BATCH)
            for (int j = 0; j < WEIGHTS; j += 16)
                _mm_prefetch((const char *)(row(step, i + 1) + j), _MM_HINT_T0);
        add_row(1e-6f * product(row(step, i)), row(step, i));
    }
}

static double microseconds(void (*work)(int)) {
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int step = 0; step < STEPS; step++) work(step);
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (1e6 * (end.tv_sec - begin.tv_sec) + 1e-3 * (end.tv_nsec - begin.tv_nsec)) / STEPS;
}

int main(void) {
    data = aligned_alloc(64, (size_t)ROWS * WEIGHTS * sizeof(float));
    for (size_t i = 0; i < (size_t)ROWS * WEIGHTS; i++) data[i] = 1e-9f * rand();
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < BATCH; i++) chosen[step][i] = rand() % ROWS;
    for (int repeat = 0; repeat < REPEATS; repeat++)
        printf("rows read once %.1f, both products in two passes %.1f, in one pass with prefetch %.1f\n",
               microseconds(read_once), microseconds(two_passes), microseconds(one_pass));
    return gradient[1] == 12345.0f; /* keeps the compiler from dropping the work */
}
